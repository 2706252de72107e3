package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	jsonType     = "application/json"
	typedType    = "application/vnd.kubernetes.protobuf,application/json"
	metadataType = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	tableType    = "application/json;as=Table;g=meta.k8s.io;v=v1"

	allPods  = "/api/v1/pods"
	pageSize = 500
)

// habit is what a kind of client asks for again and again.
type habit struct {
	every  time.Duration
	accept string
	gzip   bool
	path   func(i int) string
	walk   bool // all pages
}

// habits are those of what asks in a cluster: a controller that lists anew, a typed client, one of
// metadata, a tool that walks through pages, a node's agent, and people with kubectl, whose
// questions are forwarded.
func habits() []habit {
	fixed := func(path string) func(int) string { return func(int) string { return path } }
	return []habit{
		{every: 700 * time.Millisecond, accept: jsonType, gzip: true, path: func(i int) string {
			return "/api/v1/namespaces/" + workload.NamespaceOf(i) + "/pods?resourceVersion=0"
		}},
		{every: 3 * time.Second, accept: typedType, gzip: true, path: fixed(allPods + "?resourceVersion=0")},
		{every: 5 * time.Second, accept: metadataType, path: fixed(allPods + "?resourceVersion=0")},
		{every: 6 * time.Second, accept: jsonType, gzip: true, path: fixed(allPods), walk: true},
		{every: 200 * time.Millisecond, accept: jsonType, path: func(i int) string {
			return fmt.Sprintf("%s?resourceVersion=0&fieldSelector=spec.nodeName%%3Dnode-%04d", allPods, i%10)
		}},
		{every: time.Second, accept: tableType, path: fixed("/api/v1/namespaces/team-a/pods?limit=500")},
		{every: 2 * time.Second, accept: jsonType, path: fixed("/apis/apps/v1/deployments?resourceVersion=0")},
		{every: time.Second, accept: jsonType, path: fixed("/api/v1/namespaces/default")},
	}
}

// load is what asks listproxy, and what changes pods behind it.
type load struct {
	settings settings
	proxied  *ask.Client
	direct   *ask.Client
	changed  atomic.Int64
	pods     []metav1.ObjectMeta
}

func newLoad(cp *controlplane.ControlPlane, proxy *harness.Proxy, s settings) (*load, error) {
	cfg := cp.RESTConfig(controlplane.Admin)
	cfg.UserAgent, cfg.QPS = "listproxy-dashboard", -1
	direct, err := ask.New(cfg, 0)
	if err != nil {
		return nil, err
	}
	proxied, err := ask.New(proxy.RESTConfig(cfg), 0)
	return &load{settings: s, direct: direct, proxied: proxied}, err
}

// listed learns which pods there are, and returns how many bytes their list has.
func (l *load) listed(ctx context.Context) (int, error) {
	body, err := get(ctx, l.direct, allPods+"?resourceVersion=0", jsonType, false)
	if err != nil {
		return 0, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("decode the pods: %w", err)
	}
	for _, item := range list.Items {
		l.pods = append(l.pods, item.ObjectMeta)
	}
	return len(body), nil
}

// begin begins all that asks and changes. It ends with ctx. What fails is not asked again: while
// kube-apiserver is away, much does.
func (l *load) begin(ctx context.Context, group *errgroup.Group) {
	if l.settings.writes > 0 {
		group.Go(func() error {
			for i := range poll.Ticks(ctx, time.Second/time.Duration(l.settings.writes)) {
				if l.change(ctx, i) == nil {
					l.changed.Add(1)
				}
			}
			return nil
		})
	}
	if l.settings.quiet {
		return
	}
	for _, h := range habits() {
		group.Go(func() error {
			for i := range poll.Ticks(ctx, h.every) {
				_ = l.ask(ctx, h, i)
			}
			return nil
		})
	}
}

func (l *load) ask(ctx context.Context, h habit, i int) error {
	if !h.walk {
		_, err := get(ctx, l.proxied, h.path(i), h.accept, h.gzip)
		return err
	}
	token := ""
	for {
		q := url.Values{"limit": {fmt.Sprint(pageSize)}}
		if token != "" {
			q.Set("continue", token)
		}
		body, err := get(ctx, l.proxied, h.path(i)+"?"+q.Encode(), h.accept, h.gzip)
		if err != nil {
			return err
		}
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// change changes the i-th pod, straight at kube-apiserver.
func (l *load) change(ctx context.Context, i int) error {
	pod := l.pods[i%len(l.pods)]
	_, err := l.direct.Do(ctx, http.MethodPatch, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name, kinds.Touch(fmt.Sprintf("%08d", i)))
	return err
}

// get asks for a list. Without gzip, plain bytes are asked for: else the transport asks for gzip,
// and reads it.
func get(ctx context.Context, c *ask.Client, path, accept string, gzip bool) ([]byte, error) {
	c = c.With("Accept", accept)
	if !gzip {
		c = c.With("Accept-Encoding", "identity")
	}
	a, err := c.Do(ctx, http.MethodGet, path, nil)
	return a.Body, err
}
