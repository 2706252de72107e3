package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestWatchersRolled: two replicas are replaced under load, twice: first each by one that is there
// before it ends, then each by one that comes after it has ended. Every strict watcher, which
// resumes at its last revision, has heard of every write in the end, once and in order; each of its
// watches was answered and ended in order, or was sent away with a Retry-After by a replica that
// was ending. Watches of what nobody writes go on from memory, too, if there were bookmarks: the last
// one is newer than the other replica. Informers and the other followers know the true state.
func TestWatchersRolled(t *testing.T) {
	harness.Long(t)
	plane, leave, err := quiet.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	s := newScene(t, plane, "watchers_rolled", *binary)
	defer s.proxies.Stop(s)
	s.args = []string{"--eager", eager(), "--consistent-lists=true", "--shutdown-timeout", "1m"}
	for range 2 {
		s.start()
	}
	s.recover() // all collections are loaded
	s.follow()
	b := s.chronicle()
	defer b.stop()

	b.phase("before", nil)
	b.phase("each replaced before it ends", func() {
		for _, old := range s.proxies.All() {
			s.start()
			s.forget(old)
			poll.Pause(s.Context(), dialled)
			s.must(old.Stop())
		}
	})
	b.phase("each replaced after it has ended", func() {
		for _, old := range s.proxies.All() {
			s.forget(old)
			poll.Pause(s.Context(), dialled)
			s.must(old.Stop())
			s.start()
		}
	})
	b.stop()
	due := map[kind][]happening{}
	for k, w := range b.truth {
		s.must(poll.Retry(s.Context(), w.name, func() error { return w.heardOf(b.writes[k]) }))
		due[k] = w.events()
	}
	for _, w := range b.watchers {
		want := due[w.of]
		if w.quiet {
			want = nil
		}
		if err := poll.Retry(s.Context(), w.name, func() error { return w.heardOf(want) }); err != nil {
			s.Error(err)
		}
		if diff := cmp.Diff(want, w.events(), cmpopts.EquateEmpty()); diff != "" {
			s.Errorf("%s (-kube-apiserver +listproxy):\n%s", w.name, diff)
		}
	}
	b.end()
	s.settled()
	s.Tally.Judge(s)
}

// happening is a write, or an event.
type happening struct {
	What     watch.EventType
	Name     string
	Revision uint64 // 0: not known; answers to a DELETE do not tell it
}

// chronicle has what was written of each kind into one namespace, all of it and in order, and those
// who must hear of it.
type chronicle struct {
	*scene
	watchers []*strict
	truth    map[kind]*strict // which watch kube-apiserver itself
	stop     func()           // ends the writers
	end      func()           // ends the watchers

	mu     sync.Mutex
	writes map[kind][]happening
	now    string // the phase
}

// chronicle starts strict watchers, waits until each has its first state, and starts writers.
func (s *scene) chronicle() *chronicle {
	s.Helper()
	c := &chronicle{scene: s, writes: map[kind][]happening{}, truth: map[kind]*strict{}}
	ctx, cancel := context.WithCancel(s.Context())
	writes, stop := context.WithCancel(ctx)
	var writing, watching sync.WaitGroup
	c.stop = func() { stop(); writing.Wait() }
	c.end = func() { cancel(); watching.Wait() }
	s.Cleanup(c.end)
	for _, k := range changing {
		for _, accept := range []string{ask.JSON, strings.Replace(ask.Metadata, "MetadataList", "Metadata", 1)} {
			for _, http1 := range []bool{false, true} {
				for _, bookmarks := range []bool{false, true} {
					c.watchers = append(c.watchers, c.newStrict(k, accept, http1, bookmarks))
				}
			}
		}
		for _, http1 := range []bool{false, true} { // as JSON, which each replica has before it is ready
			w := c.newStrict(k, ask.JSON, http1, true)
			w.name, w.namespace, w.quiet = w.name+", of what nobody writes", s.namespaces[1], true
			c.watchers = append(c.watchers, w)
		}
	}
	for _, k := range changing {
		w := c.newStrict(k, ask.JSON, false, true)
		w.name, w.client, w.streams = "the truth of "+k.Plural, s.direct, false
		c.truth[k] = w
	}
	everybody := slices.AppendSeq(slices.Clone(c.watchers), maps.Values(c.truth))
	for _, w := range everybody {
		watching.Go(func() { w.run(ctx) })
	}
	for _, w := range everybody {
		s.must(poll.Retry(ctx, w.name, w.begun))
	}
	for _, k := range changing {
		writing.Go(func() { c.write(writes, k) })
	}
	return c
}

// write writes one object of a kind after the other until ctx ends, and notes each.
func (c *chronicle) write(ctx context.Context, k kind) {
	ns := c.namespaces[0]
	there := map[string]bool{}
	for i := range names / 2 {
		there[load.NameOf(i)] = true
	}
	for poll.Pause(ctx, writeEvery) {
		name := load.NameOf(rand.IntN(names))
		what, method, path, object := watch.Modified, http.MethodPatch, k.Path(ns)+"/"+name, any(kinds.Touch(strconv.Itoa(rand.Int())))
		switch {
		case !there[name]:
			what, method, path, object = watch.Added, http.MethodPost, k.Path(ns), k.Object(name)
		case rand.IntN(4) == 0:
			what, method, path, object = watch.Deleted, http.MethodDelete, load.Delete(k, ns, name), nil
		}
		// What has begun is ended, so that it is known what was written.
		a, err := c.direct.Send(context.WithoutCancel(ctx), method, path, object)
		if err != nil || a.Code/100 != 2 {
			c.Errorf("%s %s: %v %s", method, path, err, a)
			return
		}
		there[name] = what != watch.Deleted
		h := happening{What: what, Name: name}
		if there[name] {
			h.Revision, _ = a.Revision()
		}
		c.mu.Lock()
		c.writes[k] = append(c.writes[k], h)
		c.mu.Unlock()
	}
}

// phase does something, waits until each watcher has begun a watch from memory after it, and says
// where watches came from since the phase began.
func (c *chronicle) phase(name string, do func()) {
	c.Helper()
	c.enter(name)
	if do != nil {
		do()
	}
	c.enter("after: " + name)
	again := 0
	for _, w := range c.watchers {
		if w.quiet { // it has begun one anew for each replica that ended
			again += len(w.sources(name))
			continue
		}
		c.must(poll.Retry(c.Context(), w.name+" from memory "+name, func() error {
			for source := range w.sources("after: " + name) {
				if hit(source) {
					return nil
				}
			}
			return errors.New("none of its watches came from there")
		}))
	}
	if again == 0 && do != nil {
		c.Errorf("%s: no watch of what nobody writes was begun anew", name)
	}
	for _, phase := range []string{name, "after: " + name} {
		all := map[string]int{}
		for _, w := range c.watchers {
			for source, n := range w.sources(phase) {
				all[source] += n
			}
		}
		c.Logf("%s: watches of %d strict watchers: %v", phase, len(c.watchers), all)
	}
}

func hit(source string) bool { return strings.HasPrefix(source, "listproxy; hit") }

func (c *chronicle) enter(phase string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = phase
}

func (c *chronicle) current() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// strict is a watcher that never lists again. It begins before the first write.
type strict struct {
	*chronicle
	name      string
	of        kind
	client    *ask.Client // with a connection of its own
	bookmarks bool
	// streams: it begins with a streaming list.
	streams bool
	// namespace is what it watches; "": all. quiet: nobody writes there, and its watches are long.
	namespace string
	quiet     bool
	from      string // the Cache-Status of its watch
	marked    bool   // its watch told nothing but bookmarks, one at least after the state

	mu    sync.Mutex
	last  uint64 // the revision to resume at; 0: none
	heard []happening
	came  map[string]map[string]int // in each phase: how many watches by Cache-Status
}

func (c *chronicle) newStrict(k kind, accept string, http1, bookmarks bool) *strict {
	c.Helper()
	cfg := rest.CopyConfig(c.viaConfig)
	cfg.Dial = new(net.Dialer).DialContext // one that nobody has, so client-go shares no connection
	cfg.NextProtos = nil
	protocol := "HTTP/2"
	if http1 {
		cfg.NextProtos, protocol = []string{"http/1.1"}, "HTTP/1.1"
	}
	client := ask.MustNew(c, cfg, 0)
	return &strict{
		chronicle: c, of: k, client: client.With("Accept", accept), bookmarks: bookmarks, streams: bookmarks && !http1,
		name: fmt.Sprintf("a strict watcher of %s as %s over %s, bookmarks: %v", k.Plural, accept, protocol, bookmarks),
		came: map[string]map[string]int{},
	}
}

// begin finds out where to begin, unless a streaming list tells it.
func (w *strict) begin(ctx context.Context) error {
	if w.streams {
		return nil
	}
	a, err := w.via.Get(ctx, w.of.Path(""))
	if err != nil {
		return err
	}
	l, err := ask.ReadList(ask.JSON, a.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = l.Revision
	return err
}

// run watches, and resumes as soon as a watch has ended, until ctx ends.
func (w *strict) run(ctx context.Context) {
	if err := w.begin(ctx); err != nil && ctx.Err() == nil {
		w.Tally.Wrong("%s: %v", w.name, err)
		return
	}
	for ctx.Err() == nil {
		if err := w.once(ctx); err != nil && ctx.Err() == nil {
			w.Tally.Wrong("%s: %v", w.name, err)
		}
		poll.Pause(ctx, pollEvery)
	}
}

// once reads one watch to its end. An error is one that does not begin, or does not end in order.
func (w *strict) once(ctx context.Context) error {
	timeout := 5 + rand.IntN(10)
	if w.quiet {
		timeout = 600
	}
	target := fmt.Sprintf("%s?watch=true&allowWatchBookmarks=%v&timeoutSeconds=%d", w.of.Path(w.namespace), w.bookmarks, timeout)
	if w.last == 0 {
		target += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	} else {
		target += fmt.Sprintf("&resourceVersion=%d", w.last)
	}
	resp, err := w.client.Open(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		w.count(w.current(), resp.Status) // from a replica that ends, as from a kube-apiserver that ends
		return nil
	case resp.StatusCode != http.StatusOK:
		return errors.New(resp.Status)
	}
	source := resp.Header.Get("Cache-Status")
	w.count(w.current(), source)
	if w.marked && hit(w.from) && strings.Contains(source, "detail=history") {
		w.Tally.Wrong("%s: it ended at %d, from before the first state of the other replica", w.name, w.last)
	}
	w.from, w.marked = source, false
	for in := events.NewReader(resp.Body, ask.JSON); ; {
		e, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it does not end in order: %w", err)
		}
		if err := w.hear(e); err != nil {
			return err
		}
	}
}

func (w *strict) hear(e events.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	what, o, revision := e.Type, e.Meta, e.Revision
	switch {
	case what == watch.Error:
		return fmt.Errorf("%s", e.Object)
	case w.last == 0 && what == watch.Added:
		return nil // the state
	case what == watch.Bookmark && (w.last > 0 || e.EndsInitial):
		w.marked = w.quiet && w.last > 0
	case revision <= w.last || w.last == 0:
		return fmt.Errorf("%s of %s at %d, after %d", what, o.Name, revision, w.last)
	case o.Namespace == w.namespaces[0] || w.quiet:
		w.heard = append(w.heard, happening{what, o.Name, revision})
	}
	if revision < w.last {
		return fmt.Errorf("a bookmark at %d, after %d", revision, w.last)
	}
	w.last = revision
	return nil
}

func (w *strict) count(phase, source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.came[phase] == nil {
		w.came[phase] = map[string]int{}
	}
	w.came[phase][source]++
}

// sources is how many watches it has begun in a phase, by Cache-Status.
func (w *strict) sources(phase string) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.came[phase])
}

// begun is an error until it knows where it began.
func (w *strict) begun() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == 0 || len(w.came) == 0 {
		return errors.New("it does not watch yet")
	}
	return nil
}

// events are those that it was told.
func (w *strict) events() []happening {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// heardOf is an error as long as it was not told of all of these, in this order, and maybe of more.
func (w *strict) heardOf(all []happening) error {
	told := w.events()
	for i, want := range all {
		at := slices.IndexFunc(told, func(got happening) bool {
			return got == want || want.Revision == 0 && got.What == want.What && got.Name == want.Name
		})
		if at < 0 {
			return fmt.Errorf("it was not told of %v, which is number %d of %d", want, i, len(all))
		}
		told = told[at+1:]
	}
	return nil
}
