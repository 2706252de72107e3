package attacks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// The other caller asks so often. A request that takes long holds up none that comes after it.
	otherEvery = 50 * time.Millisecond
	// anewEvery is the time between two lists over a new connection, watchEvery that between two
	// watches, and stampEvery that between two changes of the pod that is followed.
	anewEvery  = time.Second
	watchEvery = 200 * time.Millisecond
	stampEvery = 50 * time.Millisecond
)

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
	o := &otherCaller{side: s, warm: s.client(otherAddress)}
	s.Cleanup(o.warm.CloseIdleConnections)
	return o
}

// target is a list of few pods, under a selector of its own: so each needs a review of its own, as
// those of a caller who begins to work do.
func (o *otherCaller) target() string {
	n := o.counts.Add(1)
	var hundredths []string
	for i := range int64(10) { // about thirty pods
		hundredths = append(hundredths, strconv.FormatInt((n+i)%100, 10))
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
			client := o.side.client(otherAddress)
			defer client.CloseIdleConnections()
			o.note(&o.figures.connections, o.list(client))
		})
	})
	loops.Go(func() { o.figures.events = o.follow(ctx) })
	loops.Go(func() { every(watchEvery, func() { o.note(&o.figures.watches, o.watch()) }) })
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

// failed counts those that are no list and no watch.
func failed(answers []crowdAnswer) (n int) {
	for _, a := range answers {
		if !a.ok() {
			n++
		}
	}
	return n
}

// forwarded counts those that succeeded and did not come from memory.
func forwarded(answers []crowdAnswer) (n int) {
	for _, a := range answers {
		if a.ok() && !a.hit() {
			n++
		}
	}
	return n
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

// list outlives the end of the work, so that its answer counts.
func (o *otherCaller) list(client *http.Client) crowdAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), crowdPatience)
	defer cancel()
	return o.side.get(ctx, client, o.side.worker, o.target())
}

// watch opens one, and closes it when the first event has come.
func (o *otherCaller) watch() (a crowdAnswer) {
	ctx, cancel := context.WithTimeout(context.Background(), crowdPatience)
	defer cancel()
	res, err := o.side.open(ctx, o.warm, o.side.worker, watched("/api/v1/namespaces/shop/pods", "resourceVersion=0"+fewPods))
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

// follow watches one pod, which it changes until ctx ends, and waits for the last of these changes.
// What it returns has an entry for each change: that it was told, or that it was not.
func (o *otherCaller) follow(ctx context.Context) (told []crowdAnswer) {
	outlives, cancel := context.WithTimeout(context.Background(), crowdPatience)
	defer cancel()
	target := watched("/api/v1/namespaces/shop/pods", "resourceVersion=0&fieldSelector=metadata.name%3D"+crowdPods.Pod(0, "shop").Name)
	res, err := o.side.open(outlives, o.warm, o.side.worker, target)
	if err != nil {
		return []crowdAnswer{{err: err}}
	}
	defer func() { _ = res.Body.Close() }()
	var written []string
	admin := o.side.admin()
	for poll.Pause(ctx, stampEvery) {
		stamp := strconv.FormatInt(o.counts.Add(1), 10)
		a, err := admin.Send(context.Background(), http.MethodPatch, podPath("shop", 0), kinds.Touch(stamp))
		if err == nil && a.Code == http.StatusOK {
			written = append(written, stamp)
		}
	}
	for in := events.NewReader(res.Body, ask.JSON); len(written) > 0; {
		e, err := in.Next()
		if err != nil {
			return append(told, crowdAnswer{err: fmt.Errorf("%d changes were not told: %w", len(written), err)})
		}
		if e.Meta.Annotations["touched"] == written[0] {
			written = written[1:]
			told = append(told, crowdAnswer{code: res.StatusCode, source: res.Header.Get("Cache-Status")})
		}
	}
	return told
}
