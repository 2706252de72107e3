package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// mixInformers watch all pods; --crowd agents watch the pods of their node.
	mixInformers = 20
	// mixNodes report their status, and renew a Lease.
	mixNodes = 50
)

// mix measures what the clients of a cluster cost together, and how long each kind of them waits.
func mix(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	if err := b.fillNodes(ctx); err != nil {
		return err
	}
	sides := []mixSide{
		{name: direct.name},
		{name: "listproxy", args: []string{"--watches", "--consistent-lists=true"}},
		{name: "listproxy, `always`", args: []string{"--watches", "--consistent-lists=always"}},
	}
	clients := b.clientKinds()
	results := make([]*mixResult, len(sides))
	for i, s := range sides {
		results[i] = newMixResult(clients, s.name)
	}
	for round := range b.settings.rounds {
		for turn := range sides {
			n := (round + turn) % len(sides)
			if err := b.measureMix(ctx, sides[n], clients, results[n]); err != nil {
				return fmt.Errorf("%s: %w", sides[n].name, err)
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t := &table{caption: fmt.Sprintf("%d agents watch the pods of their nodes, %d informers all %d pods, and other clients send so many "+
		"requests a second: %s. CPU is that of the processes for %d s, all rounds together. A walk and an informer's start count as one "+
		"answer; an event's time is from before its change is sent.",
		b.settings.crowd, mixInformers, b.settings.pods, rates(clients), b.settings.seconds)}
	for row := range results[0].rows() {
		var ofSides []*result
		for _, r := range results {
			ofSides = append(ofSides, r.rows()[row])
		}
		t.add(ofSides...)
	}
	b.report(t)
	return nil
}

// mixSide is a side that is started for each round.
type mixSide struct {
	name string
	args []string // of listproxy; nil: kube-apiserver itself
}

// mixResult has the rows of a side.
type mixResult struct {
	kinds       []*result // in the order of the client kinds
	events, all *result
}

func newMixResult(clients []clientKind, side string) *mixResult {
	m := &mixResult{
		events: &result{request: "events for agents and informers", side: side},
		all:    &result{request: "all", side: side},
	}
	for _, k := range clients {
		m.kinds = append(m.kinds, &result{request: k.name, side: side})
	}
	return m
}

func (m *mixResult) rows() []*result { return append(slices.Clone(m.kinds), m.events, m.all) }

// rates describes the rate of each kind.
func rates(clients []clientKind) string {
	var descriptions []string
	for _, k := range clients {
		descriptions = append(descriptions, fmt.Sprintf("%s %v", k.name, k.perSecond))
	}
	return strings.Join(descriptions, ", ")
}

// clientKind is a kind of clients of the mix. Its requests are sent at a rate, and do not wait for those before.
type clientKind struct {
	name      string
	perSecond float64
	// send sends the nth request.
	send func(ctx context.Context, c caller, n int) (answer, error)
}

// caller is a client of a side, with one connection.
type caller struct {
	cfg  *rest.Config
	http *http.Client
}

// clientKinds returns the kinds that a cluster has, besides agents and informers that only watch.
func (b *bench) clientKinds() []clientKind {
	// Reads.
	team := "/api/v1/namespaces/" + controlplane.TeamA + "/pods"
	read := func(q request) func(context.Context, caller, int) (answer, error) {
		return func(ctx context.Context, c caller, _ int) (answer, error) {
			return q.sendUntilAnswered(ctx, c.http, c.cfg)
		}
	}
	start := fromAnywhere("", podsWith+ask.StreamingList, clientGo)[0]
	start.stream = true
	table := fromAnywhere("", team, jsonGzip)[0]
	table.accept = "application/json;as=Table;g=meta.k8s.io;v=v1" // as kubectl get

	// The paths of objects, and changes of them.
	pod := func(i int) string {
		i %= b.settings.pods
		return "/api/v1/namespaces/" + workload.NamespaceOf(i) + "/pods/" + b.podShape().Pod(i, workload.NamespaceOf(i)).Name
	}
	podChange := func() any {
		return kinds.Fields{"metadata": kinds.Fields{"annotations": kinds.Fields{"bench.listproxy.io/at": stamp(time.Now())}}}
	}
	node := func(i int) string { return b.podShape().Node(i % mixNodes) }
	statusPath := func(i int) string { return "/api/v1/nodes/" + node(i) + "/status" }
	statusChange := func() any {
		ready := kinds.Fields{"type": "Ready", "status": "True", "lastHeartbeatTime": metav1.Now()}
		return kinds.Fields{"status": kinds.Fields{"conditions": []kinds.Fields{ready}}}
	}
	leasePath := func(i int) string {
		return "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases/" + node(i)
	}
	leaseChange := func() any { return kinds.Fields{"spec": kinds.Fields{"renewTime": metav1.NowMicro()}} }
	return []clientKind{
		{name: "informers that start", perSecond: 0.5, send: read(start)},
		{name: "lists of all pods at resourceVersion=0", perSecond: 2, send: read(fromAnywhere("", podsWith+ask.AnyVersion, clientGo)[0])},
		{name: "polls of a namespace, newest", perSecond: 5, send: read(fromAnywhere("", team, jsonGzip)[0])},
		{name: "walks over all pods, 500 a page", perSecond: 0.5, send: b.walk},
		{name: "lists by label, newest", perSecond: 2, send: read(fromAnywhere("", byLabel, jsonGzip)[0])},
		{name: "tables of a namespace", perSecond: 0.5, send: read(table)},
		{name: "GETs of a pod", perSecond: 3.5, send: oneObject(http.MethodGet, pod, nil)},
		{name: "changes of a pod", perSecond: 8, send: oneObject(http.MethodPatch, pod, podChange)},
		{name: "reports of a node's status", perSecond: 21, send: oneObject(http.MethodPatch, statusPath, statusChange)},
		{name: "renewals of a Lease", perSecond: 60, send: oneObject(http.MethodPatch, leasePath, leaseChange)},
	}
}

// oneObject returns a function that sends a request for one object. Without a body the request has none.
func oneObject(method string, path func(i int) string, body func() any) func(context.Context, caller, int) (answer, error) {
	return func(ctx context.Context, c caller, i int) (answer, error) {
		var object any
		if body != nil {
			object = body()
		}
		begun := time.Now()
		a, err := c.client().Do(ctx, method, path(i), object)
		return answer{took: time.Since(begun), bytes: int64(len(a.Body)), hit: a.FromMemory()}, err
	}
}

func (c caller) client() *ask.Client {
	return &ask.Client{Base: c.cfg.Host, HTTP: c.http, Header: http.Header{"Authorization": {"Bearer " + c.cfg.BearerToken}}}
}

// walk reads a consistent list of all pods, page by page. It counts as one answer.
func (b *bench) walk(ctx context.Context, c caller, _ int) (walked answer, err error) {
	client := c.client().WithHeader("Accept-Encoding", "gzip")
	begun := time.Now()
	page := url.Values{"limit": {strconv.Itoa(b.settings.page())}}
	for {
		a, err := client.GetAs(ctx, protobufPlain.accept(), podsWith+page.Encode())
		if err == nil && a.Code != http.StatusOK {
			err = errors.New(a.String())
		}
		if err != nil {
			return answer{}, err
		}
		walked.hit, walked.took = a.FromMemory(), time.Since(begun)
		walked.bytes += int64(len(a.Body))
		body, err := io.ReadAll(events.Unzip(bytes.NewReader(a.Body)))
		if err != nil {
			return answer{}, err
		}
		list, err := ask.ReadList(body)
		if err != nil || list.Next == "" {
			return walked, err
		}
		page.Set("continue", list.Next)
	}
}

// fillNodes creates the nodes and their Leases.
func (b *bench) fillNodes(ctx context.Context) error {
	admin, err := ask.New(b.config(direct, ""), patience)
	if err != nil {
		return err
	}
	if err := admin.Ensure(ctx, "/api/v1/namespaces", kinds.Namespace(corev1.NamespaceNodeLease)); err != nil {
		return err
	}
	node := kinds.Kind{APIVersion: "v1", Name: "Node", Plural: "nodes", ClusterScoped: true}
	lease := kinds.Kind{APIVersion: "coordination.k8s.io/v1", Name: "Lease", Plural: "leases"}
	for i := range mixNodes {
		name := b.podShape().Node(i)
		err := admin.Ensure(ctx, node.Path(""), node.Object(name))
		if err == nil {
			err = admin.Ensure(ctx, lease.Path(corev1.NamespaceNodeLease), lease.Object(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measureMix measures the mix once. A listproxy is started for it, with pods in memory.
func (b *bench) measureMix(ctx context.Context, s mixSide, clients []clientKind, r *mixResult) (err error) {
	at := direct
	if s.args != nil {
		if at, err = b.startSide(ctx, s.name, append(slices.Clone(s.args), "--eager", "pods")...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.stopLast()) }()
		for _, q := range fromMemory("", podsWith+ask.AnyVersion, jsonPlain, protobufPlain) {
			if _, err := b.warmUp(ctx, at, q); err != nil {
				return err
			}
		}
	}
	crowd := &watchers{}
	watchCtx, stop := context.WithCancel(ctx)
	defer crowd.running.Wait()
	defer stop()
	if err := b.watchMix(watchCtx, at, crowd); err != nil {
		return err
	}
	callers := make([]caller, len(clients))
	for i := range callers {
		cfg := b.config(at, "")
		client, err := newConnection(cfg, false)
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		callers[i] = caller{cfg: cfg, http: client}
	}
	err = b.measureCPU(at, notIdle, r.all, func() error { return b.sendMix(ctx, clients, callers, r) })
	crowd.mu.Lock()
	defer crowd.mu.Unlock()
	for _, delay := range crowd.delays {
		r.events.add(answer{took: delay})
	}
	r.events.hits = r.events.answers * crowd.hits / (b.settings.crowd + mixInformers)
	return errors.Join(err, crowd.lastErr)
}

// watchMix opens the watches of informers and agents.
func (b *bench) watchMix(ctx context.Context, at side, crowd *watchers) error {
	list, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	for i := range b.settings.crowd + mixInformers {
		path := podsWith + "watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion=" + list.ResourceVersion
		if i >= mixInformers {
			path += "&fieldSelector=spec.nodeName%3D" + b.podShape().Node(i)
		}
		if err := crowd.watch(ctx, b, at, request{accept: protobufPlain.accept(), path: path}); err != nil {
			return err
		}
	}
	return nil
}

// sendMix sends the requests of all client kinds, each by the caller of its kind, for --seconds.
func (b *bench) sendMix(ctx context.Context, clients []clientKind, callers []caller, r *mixResult) error {
	tickCtx, stop := context.WithTimeout(ctx, time.Duration(b.settings.seconds)*time.Second)
	defer stop()
	var sending errgroup.Group
	var mu sync.Mutex // guards r
	for i, k := range clients {
		sending.Go(func() error {
			for n := range poll.Ticks(tickCtx, time.Duration(float64(time.Second)/k.perSecond)) {
				sending.Go(func() error {
					a, err := k.send(ctx, callers[i], n)
					if err != nil {
						return fmt.Errorf("%s: %w", k.name, err)
					}
					mu.Lock()
					defer mu.Unlock()
					r.kinds[i].add(a)
					a.bytes = 0 // answers of several kinds have no common size
					r.all.add(a)
					return nil
				})
			}
			return nil
		})
	}
	return sending.Wait()
}
