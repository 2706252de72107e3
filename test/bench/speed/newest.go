package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/soak"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// newestData is how many bytes of data a config map has.
	newestData = 600
	// newestWrites is how many writes of a resource there are a second.
	newestWrites = 47
	// learning is how many lists of a sort are asked for before any is measured: what a list costs
	// is learned.
	learning = 3
	// settling is for how long listproxy may believe what lists cost before, while other things
	// changed: 500 times as long as a list of one object took.
	settling = 40 * time.Second
	// inTurn is how many lists one side is asked for before the next is.
	inTurn = 5
	// questionPatience bounds one metrics request.
	questionPatience = 30 * time.Second
)

// measureNewest measures lists of the newest state, of few objects and of many, while these change
// and while others do.
func measureNewest(ctx context.Context, s settings, r *report.Report) (err error) {
	sc := &newestScene{}
	defer func() { err = errors.Join(err, sc.close()) }()
	if err := sc.open(ctx, s, r.Log); err != nil {
		return err
	}
	if err := sc.warmForms(ctx); err != nil {
		return err
	}
	r.Say(newestIntroduction)
	for _, busy := range []bool{false, true} {
		t, err := sc.measure(ctx, s, sc.ofAllSizes(s, busy), r.Log)
		if err != nil {
			return err
		}
		r.Add(t)
	}
	for _, busy := range []bool{false, true} {
		t, err := sc.measure(ctx, s, sc.ofAllForms(s, busy), r.Log)
		if err != nil {
			return err
		}
		r.Add(t)
	}
	for _, busy := range []bool{true, false} {
		t, err := sc.herd(ctx, s, busy, r.Log)
		if err != nil {
			return err
		}
		r.Add(t)
	}
	return nil
}

const newestIntroduction = `
## The newest state

Lists of config maps of about 1 kB in one namespace that name no resourceVersion, as JSON without compression, one client.
kube-apiserver, and listproxy without ` + "`--consistent-lists`" + ` (which forwards all of them), with ` + "`true`" + ` and with ` + "`always`" + `, are asked in turn, a
few lists each. Meanwhile another resource is written 47 times a second (quiet), and config maps in another namespace as often (busy).
Times are the client's medians. CPU is that of both servers for one request, less what they use without any.
`

// newestScene is a control plane with config maps, and three listproxies before it.
type newestScene struct {
	scene
	off, always *harness.Proxy
}

func (s *newestScene) open(ctx context.Context, set settings, log func(string, ...any)) (err error) {
	if err := s.startPlane(ctx, log); err != nil {
		return err
	}
	if err := workload.Fill(ctx, s.cp, nodesFor(formsPods), formsPods, func(int) {}); err != nil {
		return err
	}
	for _, n := range append([]int{0}, set.objects...) {
		begun := time.Now()
		if err := workload.FillConfigMaps(ctx, s.cp, sizeName(n), max(1, n), newestData); err != nil {
			return err
		}
		log("%d config maps written in %v", n, time.Since(begun).Round(time.Millisecond))
	}
	if err := s.startProxy(ctx, append([]string{"--eager", "configmaps", "--consistent-lists=true"}, set.args...)); err != nil {
		return err
	}
	for _, other := range []struct {
		proxy **harness.Proxy
		mode  string
	}{{&s.off, "false"}, {&s.always, "always"}} {
		args := append([]string{"--eager", "configmaps", "--consistent-lists=" + other.mode}, set.args...)
		if *other.proxy, err = s.run(ctx, args...); err != nil {
			return err
		}
	}
	s.client, err = startChild(roleClient)
	return err
}

// sizeName is the namespace with so many config maps; that of 0 is the one whose config maps
// change.
func sizeName(n int) string { return "objects-" + strconv.Itoa(n) }

func newestPath(n int) string { return "/api/v1/namespaces/" + sizeName(n) + "/configmaps" }

// The sides of listproxy, by what --consistent-lists says.
const (
	sideOff    = "off"
	sideTrue   = "true"
	sideAlways = "always"
)

// newestSide is a server, and whose CPU a request to it costs.
type newestSide struct {
	name   string
	server server
	pids   []int
	query  string
	proves bool
}

func (s *newestScene) sides() []newestSide {
	through := func(name string, p *harness.Proxy, proves bool) newestSide {
		cfg := p.RESTConfig(s.cp.RESTConfig(controlplane.Admin))
		at := server{URL: cfg.Host, CA: cfg.CAData, Token: cfg.BearerToken}
		return newestSide{name: name, server: at, pids: []int{s.apiserver, p.PID()}, proves: proves}
	}
	return []newestSide{
		{name: nameKube, server: s.direct, pids: []int{s.apiserver}},
		through(sideOff, s.off, false), through(sideTrue, s.proxy, true), through(sideAlways, s.always, true),
	}
}

// asked is what came of the lists of a size at a side.
type asked struct {
	times []time.Duration
	hits  int
	cpu   []time.Duration // of each process, for all lists
}

// newestList is a list that is measured.
type newestList struct {
	name     string
	load     load // of which the server, and how many ask how often, are not said
	requests int  // in a round
}

// newestLists are the lists of a table.
type newestLists struct {
	caption, head string
	lists         []newestList
	sides         []newestSide
	// busy: change writes one of the objects that are listed.
	busy   bool
	change func(ctx context.Context, patch []byte) error
}

// ofAllSizes are lists of few objects and of many.
func (s *newestScene) ofAllSizes(set settings, busy bool) newestLists {
	of := newestLists{head: "objects", sides: s.sides(), busy: busy, change: s.changeConfigMap}
	for _, n := range set.objects {
		of.lists = append(of.lists, newestList{strconv.Itoa(n), load{Path: newestPath(n), Accept: acceptJSON}, requestsFor(set, n)})
	}
	return of
}

// measure asks for each list, round by round, at all sides in turn.
func (s *newestScene) measure(ctx context.Context, set settings, of newestLists, log func(string, ...any)) (*report.Table, error) {
	stop := s.write(ctx, of.busy, of.change)
	defer stop()
	order := rand.New(rand.NewPCG(1, 1)) // none comes always after the same one
	sums := make([][]asked, len(of.lists))
	bytes := make([]int64, len(of.lists))
	idle, err := s.idle(ctx, of.sides)
	if err != nil {
		return nil, err
	}
	if of.busy {
		if err := pause(ctx, settling); err != nil {
			return nil, err
		}
	}
	for round := range set.rounds {
		for i, list := range of.lists {
			if sums[i] == nil {
				sums[i] = make([]asked, len(of.sides))
				for _, side := range of.sides {
					if _, err := s.ask(side, list.load, learning, nil, &asked{}); err != nil {
						return nil, err
					}
				}
			}
			for first := 0; first < list.requests; first += inTurn {
				for _, at := range order.Perm(len(of.sides)) {
					lists := min(inTurn, list.requests-first)
					if !of.busy && of.sides[at].name == sideAlways {
						lists = 1 // takes a second
					}
					if bytes[i], err = s.ask(of.sides[at], list.load, lists, idle[at], &sums[i][at]); err != nil {
						return nil, err
					}
				}
			}
		}
		log("%s, %s, round %d of %d", of.head, quietOrBusy(of.busy), round+1, set.rounds)
	}
	t := &report.Table{Caption: of.caption, Head: []string{of.head + ", " + quietOrBusy(of.busy), "bytes", nameKube + ", time"}}
	cpu := []string{nameKube + ", CPU"}
	for _, side := range of.sides[1:] {
		t.Head, cpu = append(t.Head, side.name), append(cpu, side.name+": "+nameKube, "listproxy")
		if side.proves {
			t.Head = append(t.Head, "from memory")
		}
	}
	t.Head = append(t.Head, cpu...)
	for i, list := range of.lists {
		cells := []string{list.name, report.Size(bytes[i])}
		for at, side := range of.sides {
			of := &sums[i][at]
			slices.Sort(of.times)
			cells = append(cells, report.Millis(quantile(of.times, 0.5)))
			if side.proves {
				cells = append(cells, fmt.Sprintf("%d%%", 100*of.hits/len(of.times)))
			}
		}
		for _, of := range sums[i] {
			for _, used := range of.cpu {
				cells = append(cells, report.Millis(max(0, used)/time.Duration(len(of.times))))
			}
		}
		t.Add(cells...)
	}
	return t, nil
}

// ask asks a side for lists, one after the other, and adds what came of it. It returns how many
// bytes one has. idle is what each process uses while nobody asks.
func (s *newestScene) ask(side newestSide, l load, lists int, idle []float64, of *asked) (int64, error) {
	b := &bench{client: s.client}
	l.Server, l.Clients, l.Each, l.Sizes = side.server, 1, lists, true
	o, took, err := b.costs(l, side.pids...)
	if err != nil {
		return 0, err
	}
	if of.cpu == nil {
		of.cpu = make([]time.Duration, len(took))
	}
	for i, usually := range idle {
		of.cpu[i] += took[i] - time.Duration(usually*float64(o.Elapsed))
	}
	of.times, of.hits = append(of.times, o.Times...), of.hits+o.Hits
	return o.Size, nil
}

// requestsFor is how many lists of n objects are asked for in a round.
func requestsFor(set settings, n int) int {
	return min(set.requests, max(3, set.megabyte*1000/max(1, n)/3))
}

func quietOrBusy(busy bool) string {
	if busy {
		return "busy"
	}
	return "quiet"
}

// idle is the part of a CPU that each process uses while nobody asks.
func (s *newestScene) idle(ctx context.Context, sides []newestSide) ([][]float64, error) {
	all := make([][]float64, len(sides))
	for i, side := range sides {
		begun := time.Now()
		took, err := process.Used(func() error { return pause(ctx, idleFor) }, side.pids...)
		if err != nil {
			return nil, err
		}
		for _, d := range took {
			all[i] = append(all[i], d.Seconds()/time.Since(begun).Seconds())
		}
	}
	return all, nil
}

// changeConfigMap writes a config map.
func (s *newestScene) changeConfigMap(ctx context.Context, patch []byte) error {
	_, err := s.kube.CoreV1().ConfigMaps(sizeName(0)).Patch(ctx, workload.ConfigMapName(0), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// write writes all the time until it is stopped: namespaces, and if busy what change writes.
func (s *newestScene) write(ctx context.Context, busy bool, change func(context.Context, []byte) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second / newestWrites)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			patch := []byte(`{"metadata":{"annotations":{"bench.listproxy.io/n":"` + strconv.Itoa(n) + `"}}}`)
			_, err := s.kube.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceDefault, types.MergePatchType, patch, metav1.PatchOptions{})
			if busy && err == nil {
				err = change(ctx, patch)
			}
			if err != nil && ctx.Err() == nil {
				panic(fmt.Sprintf("a write of the load failed: %v", err))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// herd has many clients ask at once, round by round at all sides in turn, for more objects while
// these change, and for fewer while others do, and counts the lists that kube-apiserver answers
// meanwhile. One of the sides asks for any state: no proof can be sooner.
func (s *newestScene) herd(ctx context.Context, set settings, busy bool, log func(string, ...any)) (*report.Table, error) {
	stop := s.write(ctx, busy, s.changeConfigMap)
	defer stop()
	n, what := herdObjects(set, 100), "other things"
	if busy {
		n, what = herdObjects(set, 1000), "config maps"
	}
	t := &report.Table{
		Caption: fmt.Sprintf("%d clients ask for %d config maps at once while %s change, %d times. For comparison, \"any state\" is a\n"+
			"list at resourceVersion=0, which needs no proof:", set.herd, n, what, set.rounds),
		Head: []string{
			fmt.Sprintf("%d clients at once", set.herd), "lists a second", "time, median", "99%", "from memory", "refused (429)",
			"lists that kube-apiserver answered, a second", "kube-apiserver, CPU for a list", "listproxy",
		},
	}
	sides := s.sides()
	anyState := sides[slices.IndexFunc(sides, func(s newestSide) bool { return s.name == sideTrue })]
	anyState.name, anyState.query = "any state", "?resourceVersion=0"
	sides = append(sides, anyState)
	sums := make([]herded, len(sides))
	order := rand.New(rand.NewPCG(1, 1))
	for round := range set.rounds {
		for _, at := range order.Perm(len(sides)) {
			if err := s.stampede(ctx, set, n, sides[at], &sums[at]); err != nil {
				return nil, fmt.Errorf("%d clients at %s: %w", set.herd, sides[at].name, err)
			}
		}
		log("%d clients at once, %s, round %d of %d", set.herd, quietOrBusy(busy), round+1, set.rounds)
	}
	for at, side := range sides {
		of := &sums[at]
		slices.Sort(of.times)
		lists, seconds := len(of.times), of.elapsed.Seconds()
		cells := []string{
			side.name, fmt.Sprintf("%.0f", float64(lists)/seconds), report.Millis(quantile(of.times, 0.5)), report.Millis(quantile(of.times, 0.99)),
			fmt.Sprintf("%d%%", 100*of.hits/max(1, lists)), strconv.Itoa(of.refused), fmt.Sprintf("%.0f", float64(of.answered)/seconds),
		}
		for _, used := range of.cpu {
			cells = append(cells, report.Millis(used/time.Duration(max(1, lists))))
		}
		t.Add(cells...)
	}
	return t, nil
}

// herded is what came of the lists of many clients at a side, in all rounds.
type herded struct {
	asked
	refused  int
	answered int64 // by kube-apiserver
	elapsed  time.Duration
}

// stampede has many clients ask a side at once for n objects.
func (s *newestScene) stampede(ctx context.Context, set settings, n int, side newestSide, of *herded) error {
	b := &bench{client: s.client}
	l := load{
		Server: side.server, Path: newestPath(n) + side.query, Accept: acceptJSON, Each: 1, Sizes: true, Refusals: true,
		Clients: min(set.herd, herdConnections), Streams: max(1, set.herd/herdConnections),
	}
	if _, err := b.ask(load{Server: side.server, Path: l.Path, Accept: l.Accept, Clients: 1, Each: learning, Sizes: true}); err != nil {
		return err
	}
	before, err := s.listsAnswered(ctx)
	if err != nil {
		return err
	}
	o, took, err := b.costs(l, side.pids...)
	if err != nil {
		return err
	}
	after, err := s.listsAnswered(ctx)
	if err != nil {
		return err
	}
	if of.cpu == nil {
		of.cpu = make([]time.Duration, len(took))
	}
	for i := range took {
		of.cpu[i] += took[i]
	}
	of.times, of.hits = append(of.times, o.Times...), of.hits+o.Hits
	of.refused, of.answered, of.elapsed = of.refused+o.Refused, of.answered+after-before, of.elapsed+o.Elapsed
	return nil
}

// herdConnections is over how many connections a herd asks.
const herdConnections = 100

// herdObjects is the largest size up to a bound.
func herdObjects(set settings, most int) int {
	n := set.objects[0]
	for _, o := range set.objects {
		if o <= most {
			n = max(n, o)
		}
	}
	return n
}

// listsAnswered is how many lists of config maps kube-apiserver has answered so far.
func (s *newestScene) listsAnswered(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	client, err := rest.HTTPClientFor(s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	lists := map[string]string{"resource": "configmaps", "verb": "LIST"}
	n, _, err := soak.Sum(ctx, client, s.cp.URL()+"/metrics", "apiserver_request_total", lists)
	return int64(n), err
}
