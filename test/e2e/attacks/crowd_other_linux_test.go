package attacks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// The other caller asks so often. A request that takes long holds up none that comes after it.
	otherEvery = 50 * time.Millisecond
	// anewEvery is the time between two lists over a new connection, and between two watches.
	anewEvery = time.Second
)

// otherPatience is how long the other caller waits for an answer. It is longer where nothing is
// measured, since nothing may depend on the machine's speed there.
func otherPatience() time.Duration {
	if *crowdFull {
		return 15 * time.Second
	}
	return time.Minute
}

// otherCaller is a service account with rights that does its work beside an attack.
type otherCaller struct {
	side *side
	warm *http.Client
	all  sync.WaitGroup
	// counts makes each list one that nobody has asked for.
	counts atomic.Int64

	mu      sync.Mutex
	figures work
}

// work is what came of what the other caller did.
type work struct {
	lists, connections, watches []crowdAnswer
	events                      []crowdAnswer // of what was followed
}

func newOtherCaller(s *side) *otherCaller {
	o := &otherCaller{side: s, warm: s.client(otherAddress, nil)}
	s.Cleanup(o.warm.CloseIdleConnections)
	return o
}

// target is a list of few pods, under a selector of its own: so each needs a review of its own, as
// those of a caller who begins to work do.
func (o *otherCaller) target() string {
	n := o.counts.Add(1)
	var hundredths []string // about seven pods
	for i := range crowdScale(1, 10) {
		hundredths = append(hundredths, strconv.FormatInt((n+int64(i))%100, 10))
	}
	selector := workload.HundredthLabel + " in (" + strings.Join(hundredths, ",") + "),other!=n" + strconv.FormatInt(n, 10)
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&labelSelector=" + url.QueryEscape(selector)
}

// work does its work until ctx ends, and returns what came of all that was begun until then.
func (o *otherCaller) work(ctx context.Context) work {
	every := func(pause time.Duration, do func()) {
		o.all.Go(do)
		for range poll.Ticks(ctx, pause) {
			o.all.Go(do)
		}
	}
	var loops sync.WaitGroup
	loops.Go(func() { every(otherEvery, func() { o.note(&o.figures.lists, o.list(o.warm)) }) })
	loops.Go(func() {
		every(anewEvery, func() {
			client := o.side.client(otherAddress, nil)
			defer client.CloseIdleConnections()
			o.note(&o.figures.connections, o.list(client))
		})
	})
	watches := anewEvery
	if o.side.follows {
		watches = watchEvery
		loops.Go(func() { o.figures.events = o.follow(ctx) })
	}
	loops.Go(func() { every(watches, func() { o.note(&o.figures.watches, o.watch()) }) })
	loops.Wait()
	o.all.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	done := o.figures
	o.figures = work{}
	return done
}

func (o *otherCaller) note(where *[]crowdAnswer, a crowdAnswer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*where = append(*where, a)
}

// list outlives the end of the work, so that its answer counts.
func (o *otherCaller) list(client *http.Client) crowdAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), otherPatience())
	defer cancel()
	return o.side.get(ctx, client, o.side.rig.worker, o.target())
}

// watch opens one, and closes it when the first event has come.
func (o *otherCaller) watch() (a crowdAnswer) {
	ctx, cancel := context.WithTimeout(context.Background(), otherPatience())
	defer cancel()
	begun := time.Now()
	defer func() { a.took = time.Since(begun) }()
	const target = "/api/v1/namespaces/shop/pods?watch=true&resourceVersion=0" +
		"&labelSelector=bench.listproxy.io%2Fhundredth%3D3"
	res, err := o.side.open(ctx, o.warm, o.side.rig.worker, target)
	if err != nil {
		return crowdAnswer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	a.code, a.source = res.StatusCode, res.Header.Get("Cache-Status")
	if a.code == http.StatusOK {
		_, a.err = io.ReadFull(res.Body, make([]byte, 1))
	}
	return a
}

// failed counts those that are no list and no watch.
func failed(answers []crowdAnswer) (n int) {
	for _, a := range answers {
		if !a.ok() {
			n++
		}
	}
	return n
}

// fromMemory is the part of those that succeeded.
func fromMemory(answers []crowdAnswer) float64 {
	hits, all := 0, 0
	for _, a := range answers {
		if a.ok() {
			all++
		}
		if a.ok() && a.hit() {
			hits++
		}
	}
	if all == 0 {
		return 0
	}
	return float64(hits) / float64(all)
}

// percentile of how long all took, those included that failed.
func percentile(answers []crowdAnswer, p float64) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	took := make([]time.Duration, len(answers))
	for i, a := range answers {
		took[i] = a.took
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(p*float64(len(took))))]
}

// reasons says how often what was answered, and what was not.
func reasons(answers []crowdAnswer) string {
	counts := map[string]int{}
	for _, a := range answers {
		switch {
		case a.err != nil:
			counts["no answer"]++
		default:
			counts[strings.TrimSpace(fmt.Sprintf("%d %s", a.code, a.source))]++
		}
	}
	return counted(counts)
}

// counted writes counts, the largest first.
func counted(counts map[string]int) string {
	var words []string
	for what := range counts {
		words = append(words, what)
	}
	sort.Slice(words, func(i, j int) bool {
		if counts[words[i]] != counts[words[j]] {
			return counts[words[i]] > counts[words[j]]
		}
		return words[i] < words[j]
	})
	for i, what := range words {
		words[i] = fmt.Sprintf("%d × %s", counts[what], what)
	}
	return strings.Join(words, ", ")
}

// served requires that the other caller got all it asked for, and from memory what listproxy keeps.
func (w work) served(t *testing.T) {
	t.Helper()
	for what, answers := range map[string][]crowdAnswer{
		"lists": w.lists, "lists over new connections": w.connections, "watches": w.watches,
	} {
		if n := failed(answers); n > 0 || len(answers) == 0 {
			t.Errorf("the other caller: %d of %d %s failed: %s", n, len(answers), what, reasons(answers))
		}
	}
	// Together, since there are too few new connections in a few seconds for a part of them to be
	// told.
	lists := slices.Concat(w.lists, w.connections)
	if share := fromMemory(lists); share < leastFromMemory {
		t.Errorf("the other caller: %.2f of the lists came from memory: %s", share, reasons(lists))
	}
}

// leastFromMemory is the part of the other caller's lists that come from memory, whatever others
// do. A review can fail by itself on a machine that stands still.
const leastFromMemory = 0.98
