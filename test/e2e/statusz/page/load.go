package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
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
	asker, err := rest.HTTPClientFor(proxy.RESTConfig(cp.RESTConfig(controlplane.Admin)))
	if err != nil {
		return err
	}
	go write(ctx, asker, proxy.URL())
	all := clients()
	first := make(chan error, len(all))
	for _, c := range all {
		go func() {
			for begun := false; ctx.Err() == nil; begun = true {
				err := c.ask(ctx, asker, proxy.URL())
				if !begun {
					first <- err
				}
				select {
				case <-time.After(c.every):
				case <-ctx.Done():
				}
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
func write(ctx context.Context, asker *http.Client, base string) {
	for ctx.Err() == nil {
		const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"load-"}}`
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/namespaces/default/configmaps", strings.NewReader(object))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		if resp, err := asker.Do(r); err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c client) ask(ctx context.Context, asker *http.Client, base string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+c.path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", c.agent)
	r.Header.Set("Accept", c.accept)
	resp, err := asker.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", c.path, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
