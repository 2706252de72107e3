package main

import (
	"context"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// client is somebody who asks again and again.
type client struct {
	agent, path, accept string
	every               time.Duration
}

// clients are some, as clusters have them.
func clients() []client {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	return []client{
		{"cost-exporter/v2.4.1 (linux/amd64)", "/api/v1/pods?resourceVersion=0", "application/json", 100 * time.Millisecond},
		{"gitops-controller/v3.1.0 (linux/amd64)", "/apis/apps/v1/deployments?resourceVersion=0", "application/json", 70 * time.Millisecond},
		{"dashboard/v7.0.0", "/api/v1/nodes?resourceVersion=0", "application/json", 90 * time.Millisecond},
		{"node-agent/v1.2.0", "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-0001", "application/vnd.kubernetes.protobuf", 50 * time.Millisecond},
		{"kubectl/v1.36.3 (linux/amd64) kubernetes/abcdef0", "/api/v1/namespaces/default/pods?limit=500", table, 700 * time.Millisecond},
		{"ci-runner/v0.9", "/api/v1/configmaps", "application/json", 500 * time.Millisecond},
		{"informer/v0.36.3", "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "application/json", 2 * time.Second},
	}
}

// startLoad lets all of them ask until ctx ends, and returns when each has had an answer.
func startLoad(ctx context.Context, cp *controlplane.ControlPlane, proxy *harness.Proxy) error {
	asker, err := ask.New(proxy.RESTConfig(cp.RESTConfig(controlplane.Admin)), 0)
	if err != nil {
		return err
	}
	go write(ctx, asker)
	all := clients()
	first := make(chan error, len(all))
	for _, c := range all {
		go func() {
			for begun := false; ctx.Err() == nil; begun = true {
				_, err := asker.With("User-Agent", c.agent).With("Accept", c.accept).Do(ctx, http.MethodGet, c.path, nil)
				if !begun {
					first <- err
				}
				poll.Pause(ctx, c.every)
			}
		}()
	}
	for range all {
		if err := <-first; err != nil {
			return err
		}
	}
	return nil
}

// write makes changes until ctx ends. What fails is made up for by the next.
func write(ctx context.Context, asker *ask.Client) {
	object := kinds.Fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": kinds.Fields{"generateName": "load-"}}
	for poll.Pause(ctx, 200*time.Millisecond) {
		_, _ = asker.Send(ctx, http.MethodPost, "/api/v1/namespaces/default/configmaps", object)
	}
}
