package watches

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// Follow has followers of listproxy until ctx ends: each begins with a streaming list, goes away in
// the middle of it all, and resumes at the last revision that it has heard of, again and again.
// What each has heard in the end is held against what is true, and against the writes in the
// ledger.
func (c *Comparator) Follow(ctx context.Context, seed uint64, followers int) {
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, 6))
	for i := range followers {
		g := c.generator(cluster.Split(seeds))
		all.Go(func() { c.follow(ctx, g, i%2 == 0) })
	}
	all.Wait()
}

// follower is one of them.
type follower struct {
	c        *Comparator
	f        form
	rng      *rand.Rand
	heard    []oracle.Event
	last     uint64 // the revision to resume at; 0: none
	from     string // where the last stream came from
	lists    int
	resuming int
}

// follow follows one selection; of everything, if it is to be plain.
func (c *Comparator) follow(ctx context.Context, g *generator, plain bool) {
	fl := &follower{c: c, f: followed(g, plain), rng: g.rng}
	begun := c.past(fl.f.Resource)
	// What is compared at the end outlives what ends the following.
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	truth, err := openTrack(after, c.direct, fl.f, begun, c.options.Patience)
	if err != nil || truth == nil {
		if ctx.Err() == nil {
			c.report.Differs(differential.Difference{Kind: Reference, Question: fl.f.String(), Detail: fmt.Sprint("no truth: ", err)})
		}
		return
	}
	defer truth.close()
	for ctx.Err() == nil {
		if err := fl.stream(ctx, time.Duration(g.rng.IntN(1500))*time.Millisecond); err != nil && ctx.Err() == nil {
			fl.differs(err)
			return
		}
	}
	if err := fl.finish(after, truth, begun); err != nil {
		fl.differs(err)
	}
}

// followed makes up what is followed, in a form that clients use.
func followed(g *generator, plain bool) form {
	for {
		f := form{admin: g.cluster.Users()[0], selector: selectors[g.rng.IntN(len(selectors))], bookmarks: true}
		if plain {
			f.selector = differential.None
		}
		f.Question = g.of.Subject(f.selector)
		f.User = f.admin
		if plain {
			f.Namespace = ""
		}
		f.representation = representations[g.rng.IntN(len(representations)-1)] // no Table
		f.Header = http.Header{"Accept": {accepts[f.representation][0]}}
		if f.representation == differential.Protobuf && f.told() != differential.Protobuf {
			continue
		}
		if f.Namespace == "does-not-exist" || !f.Resource.Namespaced && f.Namespace != "" {
			continue
		}
		return f
	}
}

func (fl *follower) differs(err error) {
	fl.c.report.Differs(differential.Difference{
		Kind: Events, Question: "followed: " + fl.f.String(), CacheStatus: fl.from,
		Detail: fmt.Sprintf("resumed %d times: %v", fl.resuming, err),
	})
}

// stream watches for a time, from where it left off.
func (fl *follower) stream(ctx context.Context, reads time.Duration) error {
	q := fl.f.selection()
	q.Header = fl.f.Header.Clone()
	q.HTTP1 = fl.rng.IntN(3) == 0
	q.Query.Set("watch", "true")
	q.Query.Set("allowWatchBookmarks", "true")
	q.Query.Set("timeoutSeconds", strconv.Itoa(1+fl.rng.IntN(10)))
	lists := fl.last == 0
	switch {
	case !lists:
		q.Query.Set("resourceVersion", strconv.FormatUint(fl.last, 10))
	case fl.c.options.WatchList:
		q.Query.Set("sendInitialEvents", "true")
		q.Query.Set("resourceVersionMatch", "NotOlderThan")
		if fl.rng.IntN(2) == 0 {
			q.Query.Set("resourceVersion", "0")
		}
	default:
		q.Query.Set("resourceVersion", "0")
	}
	s, err := open(ctx, fl.c.proxy, q, fl.c.options.Patience)
	if err != nil {
		return err
	}
	fl.from = s.header.Get("Cache-Status")
	if _, hit := originOf(s); hit {
		fl.c.report.count(&fl.c.report.followed)
	}
	if s.status != http.StatusOK {
		s.close()
		return fmt.Errorf("%s: %d %.300s", q, s.status, s.body)
	}
	if !poll.Pause(ctx, reads) && lists {
		s.close()
		return nil
	}
	s.close()
	said, _, err := s.said()
	if err != nil {
		return err
	}
	return fl.hears(said, lists)
}

// hears notes what a stream has said.
func (fl *follower) hears(said []oracle.Event, lists bool) error {
	if lists {
		complete := false
		for _, e := range said {
			complete = complete || e.EndsInitial
		}
		if !complete {
			return nil // what began is forgotten
		}
		fl.lists++
	} else {
		fl.resuming++
		fl.c.report.count(&fl.c.report.resumes)
	}
	for _, e := range said {
		if e.Type == watch.Error {
			return fmt.Errorf("%s", e.Object)
		}
		fl.heard = append(fl.heard, e)
		if !lists || fl.heardEnd() {
			fl.last = max(fl.last, e.Revision)
		}
	}
	return nil
}

func (fl *follower) heardEnd() bool {
	for _, e := range fl.heard {
		if e.EndsInitial {
			return true
		}
	}
	return false
}

// finish reads until all is told that had been written, and judges it.
func (fl *follower) finish(ctx context.Context, truth *track, begun uint64) error {
	newest, err := fl.c.now(ctx)
	if err != nil {
		return err
	}
	if fl.last == 0 {
		return nil // it has never come so far
	}
	wants := oracle.Watch{
		Begins: oracle.FromState, Ending: true, Bookmarks: true, Least: begun, Most: newest, UpTo: newest,
		From: begun, State: truth.state,
	}
	for since := time.Now(); ; {
		if err := fl.stream(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if truth.lost() {
			fl.c.report.count(&fl.c.report.elsewhere)
			return nil
		}
		wants.Events = truth.events()
		if err = wants.Judge(fl.heard, false); err == nil {
			break
		}
		if time.Since(since) > fl.c.options.Patience {
			return err
		}
	}
	return fl.misses(newest)
}

// misses compares with the writes that were confirmed.
func (fl *follower) misses(newest uint64) error {
	if fl.f.selector != differential.None || fl.f.Namespace != "" {
		return nil
	}
	told, start := map[uint64]bool{}, uint64(0)
	for _, e := range fl.heard {
		if e.EndsInitial {
			start = e.Revision
		}
		told[e.Revision] = told[e.Revision] || start > 0 && e.Type != watch.Bookmark
	}
	for _, revision := range fl.c.cluster.Ledger.Between(fl.f.Resource.GroupResource(), start, newest) {
		if !told[revision] {
			return fmt.Errorf("the write at %d is in none of %d events", revision, len(fl.heard))
		}
	}
	return nil
}
