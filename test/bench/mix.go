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
	// mixInformers is the number of informers, which watch all pods. (Agents watch the pods of their node; --crowd is their
	// number.)
	mixInformers = 20
	// mixNodes is the number of nodes, which report their status and renew a Lease.
	mixNodes = 50
)

// runMix measures what the clients of a cluster cost together, and how long each kind of them waits for its answers.
func runMix(ctx context.Context, b *bench) error {
	if err := b.fillNodes(ctx); err != nil {
		return err
	}
	sides := []mixSide{
		{name: direct.name},
		{name: "listproxy", args: []string{"--watches", "--consistent-lists=true"}},
		{name: "listproxy, `always`", args: []string{"--watches", "--consistent-lists=always"}},
	}
	clients := b.clientKinds()
	rows := make([]*mixRows, len(sides))
	for i, s := range sides {
		rows[i] = newMixRows(clients, s.name)
	}
	for round := range b.settings.rounds {
		for turn := range sides {
			n := (round + turn) % len(sides)
			if err := b.measureMix(ctx, sides[n], clients, rows[n]); err != nil {
				return fmt.Errorf("%s: %w", sides[n].name, err)
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t := &table{caption: fmt.Sprintf("%d agents watch the pods of their nodes, %d informers all %d pods, and other clients send so many "+
		"requests a second: %s. CPU is that of the processes for %d s, all rounds together. A walk and an informer's start count as one "+
		"answer; an event's time is from before its change is sent.",
		b.settings.crowd, mixInformers, b.settings.pods, rates(clients), b.settings.seconds)}
	for i := range rows[0].list() {
		var ofAllSides []*row
		for _, m := range rows {
			ofAllSides = append(ofAllSides, m.list()[i])
		}
		t.add(ofAllSides...)
	}
	b.report(t)
	return nil
}

// mixSide is a side that is started for each round.
type mixSide struct {
	name string
	args []string // of listproxy; nil for kube-apiserver
}

// mixRows are the rows of a side.
type mixRows struct {
	kinds  []*row // the requests of each client kind, in the order of the kinds
	events *row   // the events of all watches
	all    *row   // all requests together, with the CPU time of everything
}

func newMixRows(clients []clientKind, side string) *mixRows {
	m := &mixRows{
		events: &row{request: "events for agents and informers", side: side},
		all:    &row{request: "all", side: side},
	}
	for _, k := range clients {
		m.kinds = append(m.kinds, &row{request: k.name, side: side})
	}
	return m
}

// list returns the rows in the order of the table.
func (m *mixRows) list() []*row { return append(slices.Clone(m.kinds), m.events, m.all) }

// rates describes the rate of each kind.
func rates(clients []clientKind) string {
	var descriptions []string
	for _, k := range clients {
		descriptions = append(descriptions, fmt.Sprintf("%s %v", k.name, k.perSecond))
	}
	return strings.Join(descriptions, ", ")
}

// clientKind is a kind of clients of the mix. Its requests are sent at a fixed rate, even while earlier ones have no answer
// yet.
type clientKind struct {
	name      string
	perSecond float64
	send      sendFunc
}

// sendFunc sends the nth request of a client kind.
type sendFunc func(ctx context.Context, c caller, n int) (answer, error)

// caller is a client of a side, with one connection.
type caller struct {
	cfg  *rest.Config
	http *http.Client
}

// clientKinds returns the kinds of clients of a cluster, without the agents and informers that only watch.
func (b *bench) clientKinds() []clientKind {
	// Requests of clients that read lists.
	teamPods := newRequest("/api/v1/namespaces/"+controlplane.TeamA+"/pods", jsonGzip)
	informerStart := newRequest(podsWith+ask.StreamingList, clientGo)
	informerStart.stream = true
	kubectlGet := teamPods
	kubectlGet.accept = "application/json;as=Table;g=meta.k8s.io;v=v1"

	// The path of the i-th object of each kind, and the merge patch that changes it.
	noBody := func() any { return nil }
	podPath := func(i int) string {
		i %= b.settings.pods
		return "/api/v1/namespaces/" + workload.NamespaceOf(i) + "/pods/" + b.podShape().Pod(i, workload.NamespaceOf(i)).Name
	}
	podChange := func() any {
		return kinds.Fields{"metadata": kinds.Fields{"annotations": kinds.Fields{"bench.listproxy.io/at": formatStamp(time.Now())}}}
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
		{name: "informers that start", perSecond: 0.5, send: readList(informerStart)},
		{name: "lists of all pods at resourceVersion=0", perSecond: 2, send: readList(newRequest(podsWith+ask.AnyVersion, clientGo))},
		{name: "polls of a namespace, newest", perSecond: 5, send: readList(teamPods)},
		{name: "walks over all pods, 500 a page", perSecond: 0.5, send: b.walk},
		{name: "lists by label, newest", perSecond: 2, send: readList(newRequest(byLabel, jsonGzip))},
		{name: "tables of a namespace", perSecond: 0.5, send: readList(kubectlGet)},
		{name: "GETs of a pod", perSecond: 3.5, send: oneObject(http.MethodGet, podPath, noBody)},
		{name: "changes of a pod", perSecond: 8, send: oneObject(http.MethodPatch, podPath, podChange)},
		{name: "reports of a node's status", perSecond: 21, send: oneObject(http.MethodPatch, statusPath, statusChange)},
		{name: "renewals of a Lease", perSecond: 60, send: oneObject(http.MethodPatch, leasePath, leaseChange)},
	}
}

// readList returns a function that sends a request for a list.
func readList(q request) sendFunc {
	return func(ctx context.Context, c caller, _ int) (answer, error) {
		return q.sendUntilAnswered(ctx, c.http, c.cfg)
	}
}

// oneObject returns a function that sends its nth request to the object at path(n), with the body that newBody returns.
func oneObject(method string, path func(n int) string, newBody func() any) sendFunc {
	return func(ctx context.Context, c caller, n int) (answer, error) {
		begun := time.Now()
		a, err := c.client().Do(ctx, method, path(n), newBody())
		return answer{took: time.Since(begun), bytes: int64(len(a.Body)), hit: a.FromMemory()}, err
	}
}

// client returns a client that can read whole answers.
func (c caller) client() *ask.Client {
	return &ask.Client{Base: c.cfg.Host, HTTP: c.http, Header: http.Header{"Authorization": {"Bearer " + c.cfg.BearerToken}}}
}

// walk reads a consistent list of all pods, page by page. All pages count as one answer, which is a hit if the last page is
// one.
func (b *bench) walk(ctx context.Context, c caller, _ int) (walked answer, err error) {
	client := c.client().WithHeader("Accept-Encoding", "gzip")
	begun := time.Now()
	page := url.Values{"limit": {strconv.Itoa(b.settings.page())}}
	for {
		a, err := client.GetAs(ctx, protobufPlain.accept(), podsWith+page.Encode())
		if err != nil {
			return answer{}, err
		}
		if a.Code != http.StatusOK {
			return answer{}, errors.New(a.String())
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
		err := errors.Join(
			admin.Ensure(ctx, node.Path(""), node.Object(name)),
			admin.Ensure(ctx, lease.Path(corev1.NamespaceNodeLease), lease.Object(name)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// measureMix measures the mix once at a side, for which it starts a listproxy with pods in memory.
func (b *bench) measureMix(ctx context.Context, s mixSide, clients []clientKind, rows *mixRows) (err error) {
	target := direct
	if s.args != nil {
		if target, err = b.startSide(ctx, s.name, append(slices.Clone(s.args), "--eager", "pods")...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.stopLast()) }()
		if err := b.warmUpPods(ctx, target, jsonPlain, protobufPlain); err != nil {
			return err
		}
	}
	watching := &watchers{}
	watchCtx, stop := context.WithCancel(ctx)
	defer watching.running.Wait()
	defer stop()
	if err := b.watchMix(watchCtx, target, watching); err != nil {
		return err
	}
	callers, err := b.newCallers(target, len(clients))
	if err != nil {
		return err
	}
	for _, c := range callers {
		defer c.http.CloseIdleConnections()
	}
	err = b.measureCPU(target, noIdle, rows.all, func() error { return b.sendMix(ctx, clients, callers, rows) })
	delays, watchErr := watching.received()
	for _, delay := range delays {
		rows.events.add(answer{took: delay})
	}
	// Events count as hits in proportion to the watches that are served from memory.
	watches := b.settings.crowd + mixInformers
	rows.events.hits = rows.events.answers * watching.hits / watches
	return errors.Join(err, watchErr)
}

// newCallers returns n callers of a side.
func (b *bench) newCallers(target side, n int) ([]caller, error) {
	callers := make([]caller, n)
	for i := range callers {
		cfg := b.config(target, "")
		connection, err := newConnection(cfg, http2)
		if err != nil {
			return nil, err
		}
		callers[i] = caller{cfg: cfg, http: connection}
	}
	return callers, nil
}

// watchMix opens the watches of informers and agents.
func (b *bench) watchMix(ctx context.Context, target side, watching *watchers) error {
	list, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	for i := range b.settings.crowd + mixInformers {
		path := podsWith + watchFrom(list.ResourceVersion)
		if isAgent := i >= mixInformers; isAgent {
			path += "&fieldSelector=spec.nodeName%3D" + b.podShape().Node(i)
		}
		if err := watching.watch(ctx, b, target, path); err != nil {
			return err
		}
	}
	return nil
}

// sendMix sends the requests of all client kinds for --seconds. callers[i] sends those of clients[i].
func (b *bench) sendMix(ctx context.Context, clients []clientKind, callers []caller, rows *mixRows) error {
	tickCtx, stop := context.WithTimeout(ctx, time.Duration(b.settings.seconds)*time.Second)
	defer stop()
	var sending errgroup.Group
	var mu sync.Mutex // guards rows
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
					rows.kinds[i].add(a)
					a.bytes = 0 // answers of several kinds have no common size
					rows.all.add(a)
					return nil
				})
			}
			return nil
		})
	}
	return sending.Wait()
}
