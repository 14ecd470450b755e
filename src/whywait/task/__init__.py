"""Task: what a running task sees and uses: context, signals, handlers, workers, streams, queues."""
