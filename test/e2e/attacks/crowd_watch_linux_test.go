package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// stampEvery is how often the pod changes that the other caller follows.
	stampEvery = 50 * time.Millisecond
	// wideNamespace is one of a few pods whose events are wide: each of them has a new text of
	// wideBytes, and one of them changes every wideEvery.
	wideNamespace = "wide"
	widePods      = 4
	wideBytes     = 64 << 10
	wideEvery     = 50 * time.Millisecond
)

// watchCrowdings are the attacks on watches from memory.
func watchCrowdings() []crowding {
	var (
		places  = crowdScale(4000, 200)
		streams = crowdScale(400, 40)
		rate    = crowdScale(740, 100)
		args    = []string{
			"--watches", "--consistent-lists=true", "--max-long-running-requests", strconv.Itoa(places),
			"--max-inflight-bytes", strconv.Itoa(crowdScale(256<<20, 2<<20)),
		}
		all = []crowding{
			{name: "none", what: "none"},
			{
				name:   "streams that stay",
				what:   fmt.Sprintf("%d watches of one account, which stay, for %d places", places*5/4, places),
				attack: staying(places*5/4, podsAtRevision), holds: halfOf(places),
			},
			{
				name:   "streams given up",
				what:   fmt.Sprintf("%d watches/s of one account, each reset after %v", rate, givenUp),
				attack: storm(rate, greedyToken, func(*side, int) string { return fewPodsWatched }),
			},
			{
				name:   "nobody reads wide events",
				what:   fmt.Sprintf("%d watches that nobody reads, of pods of %d KiB, of which one changes every %v", 2*streams, wideBytes>>10, wideEvery),
				attack: besideWide(stalled(streams, widePodsWatched, bothGreedy)),
			},
			{
				name:   "nobody reads streaming lists",
				what:   fmt.Sprintf("%d streaming lists of all pods that nobody reads", 2*streams),
				attack: stalled(streams, allPodsStreamed, bothGreedy),
			},
			{
				name:   "made-up revisions",
				what:   fmt.Sprintf("%d watches/s at made-up revisions, each reset after %v", rate, givenUp),
				attack: madeUpRevisions(rate),
			},
		}
	)
	for i := range all {
		all[i].args = args
	}
	return all
}

func greedyToken(s *side, _ int) string { return s.rig.greedy[0] }

func bothGreedy(s *side) []string { return s.rig.greedy[:] }

// watched is a target to watch.
func watched(path, query string) string {
	return path + "?watch=true&allowWatchBookmarks=true&" + query
}

const (
	// watchEvery is the time between two watches of an other caller who follows.
	watchEvery     = 200 * time.Millisecond
	fewPods        = "&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
	fewPodsWatched = "/api/v1/namespaces/shop/pods?watch=true&allowWatchBookmarks=true&resourceVersion=0" + fewPods
)

// podsAtRevision watches few pods, from now on.
func podsAtRevision(s *side) string {
	return watched("/api/v1/pods", "resourceVersion="+strconv.FormatUint(s.revision(), 10)+fewPods)
}

// widePodsWatched watches wide pods, from now on.
func widePodsWatched(s *side) string {
	return watched("/api/v1/namespaces/"+wideNamespace+"/pods", "resourceVersion="+strconv.FormatUint(s.revision(), 10))
}

func allPodsStreamed(*side) string {
	return watched("/api/v1/pods", "resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
}

// revision is one that has been reached.
func (s *side) revision() uint64 {
	s.Helper()
	client := s.client(otherAddress, nil)
	defer client.CloseIdleConnections()
	res, err := s.open(s.Context(), client, s.rig.worker, "/api/v1/pods?limit=1&resourceVersion=0")
	s.must(err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	s.must(err)
	list, err := ask.ReadList(ask.JSON, body)
	s.must(err)
	return list.Revision
}

// staying opens so many watches, a hundred on a connection, and reads what comes. It is ready when
// each has a header or was turned away.
func staying(watches int, target func(*side) string) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		const onOne = 100
		var (
			counts tally
			all    sync.WaitGroup
			path   = target(s)
			token  = s.rig.greedy[0]
		)
		for opened := 0; opened < watches; opened += onOne {
			client := s.client(crowdAddress, nil)
			defer client.CloseIdleConnections()
			s.get(ctx, client, token, anyList(s, 0)) // so that it is accepted, and the connection is there
			for range min(onOne, watches-opened) {
				counts.begin()
				all.Go(func() {
					res, err := s.open(ctx, client, token, path)
					if err != nil {
						counts.end("no answer")
						return
					}
					defer func() { _ = res.Body.Close() }()
					counts.end(strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Cache-Status"))))
					_, _ = io.Copy(io.Discard, res.Body)
				})
			}
		}
		s.placed(counts.ended, watches)
		ready()
		<-ctx.Done()
		all.Wait()
		return counts.pressed()
	}
}

// halfOf requires that an attack has no more than half of so many places.
func halfOf(places int) func(*testing.T, *side, figures) {
	return func(t *testing.T, _ *side, f figures) {
		held := 0
		for said, n := range f.attack.counts {
			if strings.HasPrefix(said, strconv.Itoa(http.StatusOK)) {
				held += n
			}
		}
		if held == 0 || held > places/2 {
			t.Errorf("the attack has %d of %d places", held, places)
		}
	}
}

// madeUpRevisions watches at revisions of the past and of the future, at 0, and at what is none.
func madeUpRevisions(rate int) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		now := s.revision()
		revisions := []string{
			"1", strconv.FormatUint(now+5, 10), strconv.FormatUint(now+1_000_000, 10), "0", "-1", "9223372036854775807", "18446744073709551616",
		}
		return storm(rate, greedyToken, func(_ *side, i int) string {
			return watched("/api/v1/pods", "resourceVersion="+revisions[i%len(revisions)]+fewPods)
		})(ctx, s, ready)
	}
}

// besideWide lets wide pods change while an attack lasts.
func besideWide(attack crowdAttack) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		admin := s.admin()
		_, _ = admin.Send(ctx, http.MethodPost, "/api/v1/namespaces", kinds.Namespace(wideNamespace))
		for i := range widePods {
			pod := crowdPods.Pod(i, wideNamespace)
			_, _ = admin.Send(ctx, http.MethodPost, "/api/v1/namespaces/"+wideNamespace+"/pods", pod)
		}
		ctx, cancel := context.WithCancel(ctx)
		var changing sync.WaitGroup
		changing.Go(func() {
			for i := 0; poll.Pause(ctx, wideEvery); i++ {
				text := strconv.Itoa(i) + strings.Repeat("x", wideBytes)
				_, _ = admin.Send(ctx, http.MethodPatch, podPath(wideNamespace, i%widePods), kinds.Touch(text))
			}
		})
		defer changing.Wait()
		defer cancel()
		return attack(ctx, s, ready)
	}
}

func podPath(namespace string, i int) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + crowdPods.Pod(i, namespace).Name
}

// admin writes directly to kube-apiserver.
func (s *side) admin() *ask.Client {
	s.Helper()
	return ask.MustNew(s, s.rig.plane.RESTConfig(controlplane.Admin), otherPatience())
}

// follower is a watch of the other caller's, of one pod that is changed again and again.
type follower struct {
	mu      sync.Mutex
	written map[string]time.Time // what was not told yet, and when it was begun to be written
	told    []crowdAnswer
}

// follow follows until ctx ends, and returns how long it took from the beginning of each write until
// it was told.
func (o *otherCaller) follow(ctx context.Context) []crowdAnswer {
	outlives, cancel := context.WithCancel(context.Background())
	defer cancel()
	target := watched("/api/v1/namespaces/shop/pods", "resourceVersion=0&fieldSelector=metadata.name%3D"+crowdPods.Pod(0, "shop").Name)
	res, err := o.side.open(outlives, o.warm, o.side.rig.worker, target)
	if err != nil {
		return []crowdAnswer{{err: err}}
	}
	defer func() { _ = res.Body.Close() }()
	f := &follower{written: map[string]time.Time{}}
	go f.read(res)
	admin := o.side.admin()
	for poll.Pause(ctx, stampEvery) {
		f.write(admin, strconv.FormatInt(o.counts.Add(1), 10))
	}
	_ = poll.Try(outlives, otherPatience(), stampEvery, "the last event", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.written) > 0 {
			return errNotTold
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.written {
		f.told = append(f.told, crowdAnswer{took: otherPatience(), err: errNotTold})
	}
	return f.told
}

var errNotTold = errors.New("it was not told")

func (f *follower) write(admin *ask.Client, stamp string) {
	f.mu.Lock()
	f.written[stamp] = time.Now()
	f.mu.Unlock()
	if a, err := admin.Send(context.Background(), http.MethodPatch, podPath("shop", 0), kinds.Touch(stamp)); err != nil || a.Code != http.StatusOK {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.written, stamp)
	}
}

func (f *follower) read(res *http.Response) {
	for in := events.NewReader(res.Body, ask.JSON); ; {
		e, err := in.Next()
		if err != nil {
			return
		}
		now, stamp := time.Now(), e.Meta.Annotations["touched"]
		f.mu.Lock()
		if begun, ok := f.written[stamp]; ok {
			delete(f.written, stamp)
			f.told = append(f.told, crowdAnswer{took: now.Sub(begun), code: res.StatusCode, source: res.Header.Get("Cache-Status")})
		}
		f.mu.Unlock()
	}
}

// testWatchCrowdings makes the attacks on watches. Where nothing is measured one listproxy is there
// for all of them, to which each leaves nothing behind.
func testWatchCrowdings(t *testing.T, r *crowdRig, tables *crowdTables) {
	t.Helper()
	var shared *side
	for _, c := range watchCrowdings() {
		if c.attack == nil && !*crowdFull {
			continue // only to measure by
		}
		if shared == nil && !*crowdFull {
			shared = r.through(t, c)
		}
		t.Run(c.name, func(t *testing.T) {
			s := shared.in(t)
			if s == nil {
				s = r.through(t, c)
			}
			via := s.measureWatched(c.attack)
			via.work.served(t)
			via.work.followed(t)
			if c.holds != nil {
				c.holds(t, s, via)
			}
			t.Logf("lists: %s; watches: %s; events: %s; %s; %d to %d MiB", reasons(via.work.lists), reasons(via.work.watches),
				reasons(via.work.events), via.attack, via.rss>>20, via.peak>>20)
			s.returns(via)
			if *crowdFull {
				tables.watch(c.what, via, r.directly(t).measureWatched(c.attack))
			}
		})
	}
}

// in is the same side in another test; nil if there is none.
func (s *side) in(t *testing.T) *side {
	if s == nil {
		return nil
	}
	return &side{T: t, rig: s.rig, proxy: s.proxy, url: s.url, ca: s.ca, pid: s.pid}
}

// measureWatched is measure with an other caller who follows, too.
func (s *side) measureWatched(attack crowdAttack) figures {
	s.Helper()
	s.follows = true
	return s.measure(attack, time.Duration(crowdScale(20_000, 1500))*time.Millisecond)
}

// followed requires that the other caller's watches came from memory, and that it was told all.
func (w work) followed(t *testing.T) {
	t.Helper()
	if share := fromMemory(w.watches); share < leastFromMemory {
		t.Errorf("the other caller: %.2f of the watches came from memory: %s", share, reasons(w.watches))
	}
	if n := failed(w.events); n > 0 || len(w.events) == 0 || fromMemory(w.events) < 1 {
		t.Errorf("the other caller: %d of %d events did not come: %s", n, len(w.events), reasons(w.events))
	}
}

// returns requires that nothing of an attack stays: neither goroutines nor descriptors.
func (s *side) returns(f figures) {
	s.Helper()
	const spare = 40 // connections to kube-apiserver that idle for a while, and the like
	s.eventually("what the attack took is given back", func() bool {
		now := s.holds()
		return now.goroutines <= f.held.goroutines+spare && now.descriptors <= f.held.descriptors+spare
	})
}
