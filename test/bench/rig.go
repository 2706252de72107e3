package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// podsPer is how many pods run on a node.
	podsPer = 30
	// patience bounds the wait for what must come, and lookEvery is how often it is looked for.
	patience  = 2 * time.Minute
	lookEvery = 100 * time.Millisecond
	// idleFor is how long processes are watched that nobody asks anything.
	idleFor = 3 * time.Second
	// otherWrites is how often something else than pods is written in a second.
	otherWrites = 47
)

// bench is a control plane, the listproxies before it, and what measures both.
type bench struct {
	settings settings
	out      io.Writer // takes the tables
	log      func(format string, args ...any)

	connections map[string]*http.Client // to servers, which are kept

	cp      *controlplane.ControlPlane
	binary  string // listproxy as it is delivered
	running []*harness.Proxy
	kube    kubernetes.Interface // straight to kube-apiserver
	store   *workload.Store
	// changes is how often some of the pods, which changed has, were changed before a request.
	changes int
	changed []*corev1.Pod
	// changing: pods are written now, so that answers of two sides need not be the same.
	changing bool
}

// open starts a control plane. What it made must be closed, also after an error. listproxy's files
// go into the control plane's directory, which vanishes whatever ends this process.
func (b *bench) open(ctx context.Context) (err error) {
	if b.binary, err = harness.BuildPlainProxy(); err != nil {
		return err
	}
	if b.cp, err = controlplane.Start(ctx, controlplane.Options{Log: func(line string) { b.log("%s", line) }}); err != nil {
		return err
	}
	if err := os.Setenv("TMPDIR", b.cp.Dir()); err != nil {
		return err
	}
	b.store = workload.NewStore(b.cp)
	b.kube, err = kubernetes.NewForConfig(b.cp.RESTConfig(controlplane.Admin))
	return err
}

func (b *bench) close() (err error) {
	for _, p := range b.running {
		err = errors.Join(err, p.Stop())
	}
	if b.cp != nil {
		b.cp.Stop()
	}
	return err
}

func (b *bench) nodes() workload.Pods { return workload.Pods{Nodes: b.settings.pods/podsPer + 1} }

// fill makes the pods, and a config map.
func (b *bench) fill(ctx context.Context) error {
	begun := time.Now()
	err := workload.Fill(ctx, b.cp, b.nodes(), b.settings.pods)
	b.log("%d pods written in %v", b.settings.pods, time.Since(begun).Round(100*time.Millisecond))
	if err != nil {
		return err
	}
	return workload.FillConfigMaps(ctx, b.cp, sized(0), 1, ofConfigMaps)
}

// start runs a listproxy before an upstream.
func (b *bench) start(ctx context.Context, binary string, upstream *rest.Config, args ...string) (*harness.Proxy, error) {
	p, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: upstream, Binary: binary, Args: append(append([]string{"--log-level", "info"}, args...), b.settings.args...),
	})
	if err == nil {
		b.running = append(b.running, p)
	}
	return p, err
}

// stop ends the listproxy that was started last.
func (b *bench) stop() error {
	last := len(b.running) - 1
	p := b.running[last]
	b.running = b.running[:last]
	return p.Stop()
}

// side is where requests go: straight to kube-apiserver, or through a listproxy.
type side struct {
	name  string
	proxy *harness.Proxy // nil: straight
}

const straight = "kube-apiserver"

// through starts a listproxy, and returns the side that it is.
func (b *bench) through(ctx context.Context, name string, args ...string) (side, error) {
	p, err := b.start(ctx, b.binary, b.cp.RESTConfig(controlplane.Feed), args...)
	return side{name, p}, err
}

// programs are listproxy and, if --before names one, that of another commit: each adds to the name of its side.
func (b *bench) programs() (all []struct{ binary, adds string }) {
	all = append(all, struct{ binary, adds string }{binary: b.binary})
	if b.settings.before != "" {
		all = append(all, struct{ binary, adds string }{b.settings.before, beforeAdds})
	}
	return all
}

// withBefore is through for each of the programs.
func (b *bench) withBefore(ctx context.Context, name string, args ...string) (all []side, err error) {
	for _, of := range b.programs() {
		p, err := b.start(ctx, of.binary, b.cp.RESTConfig(controlplane.Feed), args...)
		if err != nil {
			return nil, err
		}
		all = append(all, side{name + of.adds, p})
	}
	return all, nil
}

// config is that of a user's client; of the admin's, if user is "".
func (b *bench) config(at side, user string) *rest.Config {
	cfg := b.cp.RESTConfig(cmp.Or(user, controlplane.Admin))
	if at.proxy != nil {
		return at.proxy.RESTConfig(cfg)
	}
	return cfg
}

// pids are kube-apiserver's process and the listproxy's, which are all that a request can cost.
func (b *bench) pids(at side) ([]int, error) {
	kube, err := b.cp.First.PID()
	if err != nil || at.proxy == nil {
		return []int{kube}, err
	}
	return []int{kube, at.proxy.PID()}, nil
}

// cost adds to a result what both processes compute while something is done, without what they use
// anyway: idle is the part of a CPU that each used while nobody asked.
func (b *bench) cost(at side, idle []float64, r *result, do func() error) error {
	pids, err := b.pids(at)
	if err != nil {
		return err
	}
	begun := time.Now()
	used, err := process.Used(do, pids...)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", r.asked, at.name, err)
	}
	for i, of := range []*time.Duration{&r.kube, &r.proxy} {
		if i < len(used) {
			*of += used[i]
		}
		if i < len(idle) {
			*of -= time.Duration(idle[i] * float64(time.Since(begun)))
		}
	}
	return nil
}

// idle is the part of a CPU that each process of a side uses while nobody asks.
func (b *bench) idle(ctx context.Context, at side) ([]float64, error) {
	var r result
	begun := time.Now()
	err := b.cost(at, nil, &r, func() error { clock.Sleep(ctx, idleFor); return ctx.Err() })
	each := time.Since(begun).Seconds()
	return []float64{r.kube.Seconds() / each, r.proxy.Seconds() / each}, err
}

// memory is how many bytes of a process are resident.
func (b *bench) memory(at side) (kube, proxy int64, err error) {
	pids, err := b.pids(at)
	if err != nil {
		return 0, 0, err
	}
	if kube, _, err = process.Memory(pids[0]); err == nil && len(pids) > 1 {
		proxy, _, err = process.Memory(pids[1])
	}
	return kube, proxy, err
}

// compare sends each request at all sides in turn, round by round, beginning with another side each
// time: a noisy machine hits all alike. It reports a table with a row for each request and side.
func (b *bench) compare(ctx context.Context, caption string, sides []side, requests []request) (t *table, err error) {
	requests = slices.DeleteFunc(requests, func(q request) bool { return !b.settings.rows.MatchString(q.name) })
	idle := make([][]float64, len(sides))
	for i, at := range sides {
		if idle[i], err = b.idle(ctx, at); err != nil {
			return nil, err
		}
	}
	rows := make([][]*result, len(requests))
	for round := range b.settings.rounds {
		for i, q := range requests {
			now, err := b.current(ctx, q)
			if err != nil {
				return nil, err
			}
			var learnt []*result
			for _, at := range sides {
				if round > 0 && now.path == q.path {
					break // it was learnt in the first round
				}
				r, err := b.learn(ctx, at, now)
				if err != nil {
					return nil, err
				}
				learnt = append(learnt, r)
			}
			if err := sameSize(learnt, q); err != nil && !b.changing {
				return nil, err
			}
			if round == 0 {
				rows[i] = learnt
			}
			for turn := range sides {
				at := (turn + round + i) % len(sides)
				r := rows[i][at]
				clients := max(1, q.clients)
				times, each := 1, max(1, b.times(r.bytes)/clients)
				if q.changed {
					times, each = each, 1
				}
				for range times {
					if err := b.changeSome(ctx, sides[at], q); err != nil {
						return nil, err
					}
					if err := b.cost(sides[at], idle[at], r, func() error { return b.ask(ctx, sides[at], now, clients, each, r) }); err != nil {
						return nil, err
					}
				}
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t = &table{caption: caption}
	for _, of := range rows {
		t.add(of...)
	}
	b.report(t)
	return t, nil
}

// megabytes is how much a request may send in a round, where fewer requests can make it less.
const megabytes = 100

// times says how often a request of so many bytes is sent in a round.
func (b *bench) times(bytes int64) int {
	return min(b.settings.requests, max(3, int(megabytes*1e6/max(1, bytes))))
}

// learn sends a request until what it costs is known where that decides who answers, and where it
// can be answered from memory until it is. It returns its row.
func (b *bench) learn(ctx context.Context, at side, q request) (*result, error) {
	begun := time.Now()
	for {
		r := &result{asked: q.name, of: at.name}
		if err := b.ask(ctx, at, q, 1, 3, r); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", q.name, at.name, err)
		}
		switch {
		case !q.memory || at.proxy == nil || r.hits == r.answers:
			return &result{asked: q.name, of: at.name, bytes: r.bytes}, nil
		case time.Since(begun) > patience:
			return nil, fmt.Errorf("%s: not from memory within %v", q.path, patience)
		case !clock.Sleep(ctx, lookEvery):
			return nil, ctx.Err()
		}
	}
}

// revisionDigits is by how much answers of the same objects may differ in length: a revision, and a
// token that holds one, may have a digit more.
const revisionDigits = 16

// sameSize looks whether all sides sent as much, where nothing changes and nothing is compressed.
func sameSize(rows []*result, q request) error {
	for _, r := range rows {
		if q.memory && !q.gzip && !q.stream && max(r.bytes-rows[0].bytes, rows[0].bytes-r.bytes) > revisionDigits {
			return fmt.Errorf("%s: %s sent %d bytes, and %s %d", q.name, r.of, r.bytes, rows[0].of, rows[0].bytes)
		}
	}
	return nil
}

// current puts the newest revision into a request, and the continue token of the page in the middle:
// what is older leaves the history after a while.
func (b *bench) current(ctx context.Context, q request) (request, error) {
	if !strings.Contains(q.path, newestRevision) && !strings.Contains(q.path, middlePage) {
		return q, nil
	}
	half, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: int64(b.settings.pods / 2)})
	if err != nil {
		return q, err
	}
	q.path = strings.ReplaceAll(q.path, newestRevision, half.ResourceVersion)
	q.path = strings.ReplaceAll(q.path, middlePage, half.Continue)
	return q, nil
}

// some returns pods of a namespace as they are in etcd.
func (b *bench) some(ctx context.Context, namespace string, n int) ([]*corev1.Pod, error) {
	pods, err := b.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: int64(n)})
	if err != nil {
		return nil, err
	}
	all := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		pods.Items[i].ResourceVersion = ""
		all[i] = &pods.Items[i]
	}
	return all, nil
}

// change changes pods in turn, so many a second, until ctx ends or that many changes are made; 0: no
// end. It writes them into etcd itself, so that the writing costs kube-apiserver nothing.
func (b *bench) change(ctx context.Context, pods []*corev1.Pod, perSecond, most int) (made int, err error) {
	for i := range poll.Ticks(ctx, time.Second/time.Duration(perSecond)) {
		changed := pods[i%len(pods)].DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "bench.listproxy.io/at", stamp(time.Now()))
		if err := b.store.Put(ctx, changed); err != nil && ctx.Err() == nil {
			return i, err
		}
		if made = i + 1; made == most {
			break
		}
	}
	return made, nil
}

// changeSome changes every hundredth pod before a request that says so, other ones each time, and waits until the side
// knows of it.
func (b *bench) changeSome(ctx context.Context, at side, q request) error {
	if !q.changed {
		return nil
	}
	const oneOf, perSecond, rest = 100, 1000, 300 * time.Millisecond // states in other forms take the changes meanwhile
	if b.changed == nil {
		var err error
		if b.changed, err = b.some(ctx, "", b.settings.pods); err != nil {
			return err
		}
	}
	b.changes++
	var chosen []*corev1.Pod
	for i := b.changes % oneOf; i < len(b.changed); i += oneOf {
		chosen = append(chosen, b.changed[i])
	}
	if _, err := b.change(ctx, chosen, perSecond, len(chosen)); err != nil {
		return err
	}
	now, err := b.current(ctx, request{path: podsPath + "limit=1&resourceVersion=" + newestRevision, accept: q.accept})
	if err != nil {
		return err
	}
	clock.Sleep(ctx, rest)
	return b.ask(ctx, at, now, 1, 1, &result{})
}

// disturb writes something else than what is asked for all the time, and in busy times pods and a
// config map too, until it is stopped.
func (b *bench) disturb(ctx context.Context, busy bool) (stop func() error, err error) {
	var pods []*corev1.Pod
	if busy {
		if pods, err = b.some(ctx, controlplane.TeamA, 10); err != nil {
			return nil, err
		}
	}
	b.changing = busy
	ctx, cancel := context.WithCancel(ctx)
	writing, ctx := errgroup.WithContext(ctx)
	patch := func(i int) []byte {
		return []byte(`{"metadata":{"annotations":{"bench.listproxy.io/n":"` + strconv.Itoa(i) + `"}}}`)
	}
	every := func(write func(i int) error) {
		writing.Go(func() error {
			for i := range poll.Ticks(ctx, time.Second/otherWrites) {
				if err := write(i); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	every(func(i int) error {
		_, err := b.kube.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceDefault, types.MergePatchType, patch(i), metav1.PatchOptions{})
		return err
	})
	if busy {
		every(func(i int) error {
			_, err := b.kube.CoreV1().ConfigMaps(sized(0)).Patch(ctx, workload.ConfigMapName(0), types.MergePatchType, patch(i), metav1.PatchOptions{})
			return err
		})
		writing.Go(func() error {
			_, err := b.change(ctx, pods, otherWrites, 0)
			return err
		})
	}
	return func() error {
		cancel()
		b.changing = false
		return writing.Wait()
	}, nil
}
