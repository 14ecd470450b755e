"""DevTools in a real server with several worker processes: one page, one run; and the server's logs as they were."""

import http.client
import json

import pytest

from patience import PATIENCE_S
from whywait.devtools.remote import Remote
from worker_service import service


def test_a_token_shows_its_own_run_whichever_worker_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with service(tmp_path, 3) as served:
        for pid, token in served.tokens.items():
            told = {served.get("/whywait/api/tasks", token)[1] for _ in range(12)}
            assert {row["id"] for each in told for row in json.loads(each)["tasks"]} == {f"of-{pid}"}
            status, body, headers = served.get(f"/whywait/api/tasks/of-{pid}?x=1", token)
            assert (status, json.loads(body)["task"]["outcome"]) == (200, "success")
            assert headers["x-frame-options"] == "DENY"
            assert served.get("/whywait/api/tasks/nothing%2Fhere", token)[0] == 404
            assert served.get("/whywait/api/info", token, Origin="http://evil.example")[0] == 403
            assert served.get("/whywait/api/info", token, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        for _ in range(6):
            assert served.get("/whywait/api/info", "wrong" * 5)[0] == 401
            assert served.get("/whywait/api/info")[0] == 401
            assert served.get("/whywait/")[0] == 200
        sockets = sorted(tmp_path.glob("whywait/*.sock"))
        assert len(sockets) == 3
        assert Remote(f"unix://{sockets[0]}").get("/api/info")["mode"] == "live"
    assert not list(tmp_path.glob("whywait/*")), "nothing stays behind"


def test_a_stream_of_a_siblings_run_ends_when_its_viewer_leaves(tmp_path):
    with service(tmp_path, 2) as served:
        for token in served.tokens.values():
            for _ in range(6):
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
                headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
                connection.request("GET", "/whywait/api/events", headers=headers)
                assert connection.getresponse().readline() == b"retry: 1000\n"
                connection.close()
        log = served.log.read_text()
    assert "Traceback" not in served.log.read_text(), log


@pytest.mark.parametrize("workers", [1, 2])
def test_the_servers_own_logs_are_as_they_would_be_without(tmp_path, workers):
    with service(tmp_path, workers) as served:
        assert served.get("/fine")[0] == 200
        assert served.get("/broken")[0] == 500
        token = next(iter(served.tokens.values()))
        assert served.get("/whywait/api/info", token)[0] == 200
    log = served.log.read_text()
    assert '"GET /fine HTTP/1.1" 200' in log
    assert "OSError: broken as told" in log
    assert '"GET /whywait/api/info HTTP/1.1" 200' in log
    assert token not in log.replace(f"#token={token}", ""), "but for the line that announces it"
