package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	// mixInformers is how many clients watch all pods; --crowd is how many watch the pods of their node.
	mixInformers = 20
	// mixNodes is how many nodes report their status, and renew a Lease.
	mixNodes = 50

	nodesPath, leasesPath = "/api/v1/nodes/", "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases/"
)

// clientKind is a kind of clients of the mix: what they do, and how often in a second all of them together do it.
// They do not wait for each other.
type clientKind struct {
	name      string
	perSecond float64
	do        func(ctx context.Context, server connected, i int) (answer, error)
}

// connected is a connection to a side, and who asks over it.
type connected struct {
	cfg  *rest.Config
	over *http.Client
}

// clientKinds are those that a cluster has, beside agents and informers that only watch.
func (b *bench) clientKinds() []clientKind {
	team := "/api/v1/namespaces/" + controlplane.TeamA + "/pods"
	read := func(q request) func(context.Context, connected, int) (answer, error) {
		return func(ctx context.Context, server connected, _ int) (answer, error) {
			return q.untilAnswered(ctx, server.over, server.cfg)
		}
	}
	start := in("", podsPath+ask.StreamingList, false, goClients)[0]
	start.stream = true
	table := in("", team, false, zipped)[0]
	table.accept = "application/json;as=Table;g=meta.k8s.io;v=v1" // as kubectl get
	pod := func(i int) string {
		i %= b.settings.pods
		return "/api/v1/namespaces/" + workload.NamespaceOf(i) + "/pods/" + b.nodes().Pod(i, workload.NamespaceOf(i)).Name
	}
	node := func(i int) string { return b.nodes().Node(i % mixNodes) }
	return []clientKind{
		{name: "informers that start", perSecond: 0.5, do: read(start)},
		{name: "lists of all pods at resourceVersion=0", perSecond: 2, do: read(in("", podsPath+ask.AnyVersion, false, goClients)[0])},
		{name: "polls of a namespace, newest", perSecond: 5, do: read(in("", team, false, zipped)[0])},
		{name: "walks over all pods, 500 a page", perSecond: 0.5, do: b.walk},
		{name: "lists by label, newest", perSecond: 2, do: read(in("", byLabel, false, zipped)[0])},
		{name: "tables of a namespace", perSecond: 0.5, do: read(table)},
		{name: "GETs of a pod", perSecond: 3.5, do: oneObject(http.MethodGet, pod, nil)},
		{name: "changes of a pod", perSecond: 8, do: oneObject(http.MethodPatch, pod, func() any {
			return kinds.Fields{"metadata": kinds.Fields{"annotations": kinds.Fields{"bench.listproxy.io/at": stamp(time.Now())}}}
		})},
		{name: "reports of a node's status", perSecond: 21, do: oneObject(http.MethodPatch, func(i int) string { return nodesPath + node(i) + "/status" }, func() any {
			return kinds.Fields{"status": kinds.Fields{"conditions": []kinds.Fields{{"type": "Ready", "status": "True", "lastHeartbeatTime": metav1.Now()}}}}
		})},
		{name: "renewals of a Lease", perSecond: 60, do: oneObject(http.MethodPatch, func(i int) string { return leasesPath + node(i) }, func() any {
			return kinds.Fields{"spec": kinds.Fields{"renewTime": metav1.NowMicro()}}
		})},
	}
}

// oneObject returns what clients do who read or write one object.
func oneObject(method string, path func(i int) string, body func() any) func(context.Context, connected, int) (answer, error) {
	return func(ctx context.Context, server connected, i int) (answer, error) {
		var object any
		if body != nil {
			object = body()
		}
		begun := time.Now()
		a, err := server.client().Do(ctx, method, path(i), object)
		return answer{took: time.Since(begun), bytes: int64(len(a.Body)), hit: a.FromMemory()}, err
	}
}

func (c connected) client() *ask.Client {
	return &ask.Client{Base: c.cfg.Host, HTTP: c.over, Header: http.Header{"Authorization": {"Bearer " + c.cfg.BearerToken}}}
}

// walk reads all pods at the newest state, page by page.
func (b *bench) walk(ctx context.Context, server connected, _ int) (walked answer, err error) {
	client := server.client().With("Accept-Encoding", "gzip")
	begun := time.Now()
	page := url.Values{"limit": {strconv.Itoa(b.settings.page)}}
	for {
		a, err := client.GetAs(ctx, protobuf.accept(), podsPath+page.Encode())
		if err == nil && a.Code != http.StatusOK {
			err = errors.New(a.String())
		}
		if err != nil {
			return answer{}, err
		}
		walked.hit, walked.bytes, walked.took = a.FromMemory(), walked.bytes+int64(len(a.Body)), time.Since(begun)
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

// mix measures what a cluster's clients cost together, and how long each kind of them waits.
func mix(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.fillNodes(ctx); err != nil {
		return err
	}
	switches := []struct {
		name string
		args []string
	}{{name: straight}, {"listproxy", []string{"--watches", "--consistent-lists=true"}}, {"listproxy, `always`", []string{"--watches", "--consistent-lists=always"}}}
	clients := b.clientKinds()
	rows := make([][]*result, len(clients)+2) // by kind; then events, and all together
	for i := range rows {
		for _, s := range switches {
			name := []string{"events for agents and informers", "all"}[max(0, i-len(clients))]
			if i < len(clients) {
				name = clients[i].name
			}
			rows[i] = append(rows[i], &result{asked: name, of: s.name})
		}
	}
	for round := range b.settings.rounds {
		for turn := range switches {
			n := (round + turn) % len(switches)
			var of []*result
			for _, row := range rows {
				of = append(of, row[n])
			}
			if err := b.mixed(ctx, switches[n].name, switches[n].args, clients, of); err != nil {
				return fmt.Errorf("%s: %w", switches[n].name, err)
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t := &table{caption: fmt.Sprintf("%d agents watch the pods of their nodes, %d informers all %d pods, and other clients send so many requests a second: %s. "+
		"CPU is that of the processes for %d s, all rounds together. A walk and an informer's start count as one answer; an event's time is from before its change is sent.",
		b.settings.crowd, mixInformers, b.settings.pods, rates(clients), b.settings.seconds)}
	for _, row := range rows {
		t.add(row...)
	}
	b.report(t)
	return nil
}

// rates says how often each kind asks.
func rates(clients []clientKind) string {
	var all []string
	for _, k := range clients {
		all = append(all, fmt.Sprintf("%s %v", k.name, k.perSecond))
	}
	return strings.Join(all, ", ")
}

// fillNodes makes the nodes and their Leases.
func (b *bench) fillNodes(ctx context.Context) error {
	admin, err := ask.New(b.config(side{}, ""), patience)
	if err != nil {
		return err
	}
	if err := admin.Ensure(ctx, "/api/v1/namespaces", kinds.Namespace(corev1.NamespaceNodeLease)); err != nil {
		return err
	}
	node := kinds.Kind{APIVersion: "v1", Name: "Node", Plural: "nodes", ClusterScoped: true}
	lease := kinds.Kind{APIVersion: "coordination.k8s.io/v1", Name: "Lease", Plural: "leases"}
	for i := range mixNodes {
		name := b.nodes().Node(i)
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

// mixed measures the mix once: at kube-apiserver, if args are nil, and otherwise at a listproxy that has pods in memory.
func (b *bench) mixed(ctx context.Context, name string, args []string, clients []clientKind, rows []*result) (err error) {
	at := side{name: name}
	if args != nil {
		if at, err = b.through(ctx, name, append(args, "--eager", "pods")...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.stop()) }()
		for _, q := range in("", podsPath+ask.AnyVersion, true, plain, protobuf) {
			if _, err := b.learn(ctx, at, q); err != nil {
				return err
			}
		}
	}
	now, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	watchers := &audience{}
	defer watchers.all.Wait()
	defer end()
	for i := range b.settings.crowd + mixInformers {
		path := podsPath + "watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion=" + now.ResourceVersion
		if i >= mixInformers {
			path += "&fieldSelector=spec.nodeName%3D" + b.nodes().Node(i)
		}
		if err := watchers.join(life, b, at, request{accept: protobuf.accept(), path: path}); err != nil {
			return err
		}
	}
	servers := make([]connected, len(clients))
	for i := range servers {
		cfg := b.config(at, "")
		over, err := newConnection(cfg, false)
		if err != nil {
			return err
		}
		defer over.CloseIdleConnections()
		servers[i] = connected{cfg: cfg, over: over}
	}
	told, all := rows[len(rows)-2], rows[len(rows)-1]
	err = b.cost(at, nil, all, func() error {
		asking, stop := context.WithTimeout(ctx, time.Duration(b.settings.seconds)*time.Second)
		defer stop()
		var group errgroup.Group
		var mu sync.Mutex
		for i, k := range clients {
			group.Go(func() error {
				for n := range poll.Ticks(asking, time.Duration(float64(time.Second)/k.perSecond)) {
					group.Go(func() error {
						a, err := k.do(ctx, servers[i], n)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							return fmt.Errorf("%s: %w", k.name, err)
						}
						rows[i].take(a)
						a.bytes = 0 // of many kinds
						all.take(a)
						return nil
					})
				}
				return nil
			})
		}
		return group.Wait()
	})
	watchers.mu.Lock()
	defer watchers.mu.Unlock()
	for _, delay := range watchers.delays {
		told.take(answer{took: delay})
	}
	told.hits = told.answers * watchers.hits / (b.settings.crowd + mixInformers)
	return errors.Join(err, watchers.failed)
}
