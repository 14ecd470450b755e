"""DevTools in the app of a real server: the server's logs are as they were."""

from worker_service import service


def test_the_servers_own_logs_are_as_they_would_be_without(tmp_path):
    with service(tmp_path) as served:
        assert served.get("/fine")[0] == 200
        assert served.get("/broken")[0] == 500
        assert served.get("/whywait/api/info", served.token)[0] == 200
    log = served.log.read_text()
    assert '"GET /fine HTTP/1.1" 200' in log
    assert "OSError: broken as told" in log
    assert '"GET /whywait/api/info HTTP/1.1" 200' in log
    assert served.token not in log.replace(f"#token={served.token}", ""), "but for the line that announces it"
