package watch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

var encoding = wire.EncodingOf(media.JSON)

// testForm has a bookmark of each kind.
func testForm(t testing.TB) Form {
	t.Helper()
	frame := wire.FixedFrame("PodList", "v1", wire.Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true})
	frame.Namespaces = true
	form := Form{Frame: frame}
	for line, b := range map[string]**wire.Bookmark{
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}`:                                                    &form.Plain,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`: &form.InitialEnd,
	} {
		ev, err := encoding.Event([]byte(line + "\n"))
		expect.NoError(t, err)
		if *b, err = wire.LearnBookmark(encoding, ev); err != nil {
			t.Fatal(err)
		}
	}
	return form
}

// cluster writes objects, and publishes each write to a hub.
type cluster struct {
	t     testing.TB
	rnd   *rand.Rand
	span  Span
	state index.Tree
	// log is every change, in order.
	log []logged
	hub *Hub
}

type logged struct {
	revision uint64
	index.Change
}

func newCluster(t testing.TB, seed uint64) *cluster {
	c := &cluster{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), span: Span{From: 10, To: 10}, state: index.NewTree(true)}
	c.span.Versions.Append(index.Version{Revision: 10, Tree: c.state.Clone()})
	c.hub = NewHub(testForm(t), c.span, &Counts{}, &Pacer{})
	return c
}

// object makes one at a revision.
func (c *cluster) object(namespace, name, app, node string, revision uint64) *index.Object {
	text := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},"spec":{"nodeName":%q}}`,
		name, namespace, revision, app, node)
	o := index.NewObject(0, index.JoinKey(namespace, name), revision, []byte(text))
	o.Labels, o.Fields = wire.MustLabels("app", app), []string{node}
	return o
}

// write changes one object at random, or moves the revision without a change.
func (c *cluster) write() {
	revision := c.span.To + 1 + c.rnd.Uint64N(3)
	namespace, name := fmt.Sprint("n", c.rnd.IntN(3)), fmt.Sprint("p", c.rnd.IntN(4))
	o := c.object(namespace, name, fmt.Sprint(c.rnd.IntN(3)), fmt.Sprint("node", c.rnd.IntN(3)), revision)
	if c.rnd.IntN(25) == 0 { // a large one, before its revision and after it
		pad := func() string { return strings.Repeat("x", c.rnd.IntN(batchSize*5/4)) }
		o.Bytes = fmt.Appendf(nil, `{"a":%q,%s,"z":%q}`, pad(), o.Bytes[1:len(o.Bytes)-1], pad())
	}
	switch before, found := c.state.Get(o.Key); {
	case c.rnd.IntN(10) == 0:
		c.span.To = revision
		c.hub.Publish(c.span)
	case found && c.rnd.IntN(3) == 0:
		bytes, err := wire.AtRevision(encoding, before.Bytes, revision)
		if err != nil {
			c.t.Fatal(err)
		}
		c.state.Remove(o.Key)
		c.change(revision, index.Change{Before: before, After: index.NewObject(0, o.Key, revision, bytes), Deleted: true})
	default:
		c.state.Set(o)
		c.change(revision, index.Change{Before: before, After: o})
	}
}

func (c *cluster) change(revision uint64, change index.Change) {
	c.log = append(c.log, logged{revision, change})
	c.span.Versions.Append(index.Version{Revision: revision, Tree: c.state.Clone(), Change: change})
	c.span.To = revision
	c.hub.Publish(c.span)
}

// trim forgets all but the last changes.
func (c *cluster) trim(keep int) {
	if n := c.span.Versions.Len(); n > keep {
		c.span.From = c.span.Versions.At(n - keep).Revision
		c.span.Versions.Forget(n - keep)
		c.hub.Publish(c.span)
	}
}

// renew loads the newest state anew, some revisions later.
func (c *cluster) renew() {
	rev := c.span.To + 10
	c.span = Span{From: rev, To: rev}
	c.span.Versions.Append(index.Version{Revision: rev, Tree: c.state.Clone()})
	c.hub.Renew(*c.hub.Form(), c.span)
}

// queries are the kinds of watches.
func queries(t testing.TB) map[string]index.Query {
	t.Helper()
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		expect.NoError(t, err)
		return s
	}
	return map[string]index.Query{
		"all":                   {},
		"a namespace":           {Scope: index.Scope{Namespace: "n1"}},
		"an object":             {Scope: index.Scope{Namespace: "n1"}, Name: "p2", Fields: fields.OneTermEqualSelector("metadata.name", "p2")},
		"a name":                {Fields: fields.OneTermEqualSelector("metadata.name", "p2")},
		"a label":               {Labels: selector("app=1")},
		"a label and namespace": {Scope: index.Scope{Namespace: "n2"}, Labels: selector("app in (1)")},
		"not a label":           {Labels: selector("app!=1")},
		"a node":                {Fields: fields.OneTermEqualSelector("spec.nodeName", "node1")},
		"not a node":            {Fields: fields.OneTermNotEqualSelector("spec.nodeName", "node1")},
		"a namespace's field":   {Fields: fields.OneTermEqualSelector("metadata.namespace", "n0")},
	}
}

// expected is what a watch from a revision is told, by another way of thinking: two sets are
// compared, of what it saw before each change and after.
func (c *cluster) expected(q index.Query, after uint64) []string {
	var events []string
	chosen := func(o *index.Object, deleted bool) bool {
		if o == nil || deleted {
			return false
		}
		namespace, name := index.SplitKey(o.Key)
		return (q.Scope.Namespace == "" || q.Scope.Namespace == namespace) && (q.Name == "" || q.Name == name) &&
			(q.Labels == nil || q.Labels.Matches(o.Labels)) &&
			(q.Fields == nil || q.Fields.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": o.Fields[0]}))
	}
	for _, l := range c.log {
		if l.revision <= after {
			continue
		}
		was, is := chosen(l.Before, false), chosen(l.After, l.Deleted)
		tell := func(kind string, o *index.Object) {
			text := strings.Replace(string(o.Bytes), fmt.Sprintf(`"resourceVersion":"%d"`, o.Revision), fmt.Sprintf(`"resourceVersion":"%d"`, l.revision), 1)
			events = append(events, fmt.Sprintf("%s %s", kind, text))
		}
		switch {
		case is && was:
			tell("MODIFIED", l.After)
		case is:
			tell("ADDED", l.After)
		case was:
			tell("DELETED", l.Before)
		}
	}
	return events
}

// inBubble runs a test of a cluster in a bubble of time.
func inBubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t, 1)) })
}

// runInBubble is inBubble, by a name.
func runInBubble(t *testing.T, name string, test func(t *testing.T, c *cluster)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// client reads what a cursor tells. It is closed at the end of the test, if not before.
type client struct {
	*Cursor
	closing   sync.Once
	query     index.Query
	after     uint64
	events    []string
	bookmarks []uint64
	end       Ending
}

func always() bool { return true }

func (c *cluster) watch(q index.Query, o Options) *client {
	c.t.Helper()
	o.Filter = index.NewFilter(c.hub.Form().Frame, q)
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.Defined == nil {
		o.Defined = always
	}
	cursor := c.hub.Watch(o)
	if cursor == nil {
		c.t.Fatal("no cursor")
	}
	w := &client{Cursor: cursor, query: q, after: o.After}
	c.t.Cleanup(func() { w.Close(EndGone) })
	return w
}

// Close is [Cursor.Close], once.
func (w *client) Close(why Ending) { w.closing.Do(func() { w.Cursor.Close(why) }) }

// readOn reads until the end.
func (w *client) readOn(ctx context.Context) {
	for w.end == "" {
		if !w.take(ctx) && w.end == "" {
			w.Wait(ctx)
		}
	}
}

// take reads what is there, and says whether there was anything.
func (w *client) take(ctx context.Context) bool {
	var b Batch
	end := w.Take(ctx, &b)
	text, read := slices.Concat(slices.Collect(b.Parts)...), 0
	if len(text) != b.Size() {
		panic(fmt.Sprintf("%d bytes are said to be %d", len(text), b.Size()))
	}
	in := bufio.NewReader(bytes.NewReader(text))
	for {
		record, err := encoding.Record(in, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		ev, err := encoding.Event(record)
		if err != nil {
			panic(err)
		}
		if read++; ev.Kind == wire.Bookmarked {
			w.bookmarks = append(w.bookmarks, ev.Meta.Revision)
			continue
		}
		w.events = append(w.events, ev.Kind+" "+string(ev.Object))
	}
	if read != b.Events {
		panic(fmt.Sprintf("%d events are said to be %d", read, b.Events))
	}
	w.end = end
	return read > 0
}

// TestCursorsAgainstTheLog: clients of all kinds follow from all revisions while objects change, and
// each is told just what another way of thinking makes of the log. (In a bubble they may take as long
// as they need: at the end, what is left is told for some seconds only.)
func TestCursorsAgainstTheLog(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testCursorsAgainstTheLog(t, seed) })
		})
	}
}

func testCursorsAgainstTheLog(t *testing.T, seed uint64) {
	c := newCluster(t, seed)
	var clients []*client
	var reading sync.WaitGroup
	for range 150 {
		for range c.rnd.IntN(4) {
			c.write()
			if c.rnd.IntN(3) == 0 {
				synctest.Wait() // until all have been told
			}
		}
		if c.rnd.IntN(4) > 0 {
			continue
		}
		for _, q := range queries(t) {
			after := c.span.From + c.rnd.Uint64N(c.span.To-c.span.From+1)
			w := c.watch(q, Options{After: after})
			clients = append(clients, w)
			reading.Go(func() {
				w.readOn(t.Context())
				w.Close(w.end)
			})
		}
	}
	c.hub.EndWithin(0, EndShutdown)
	reading.Wait()
	for _, w := range clients {
		if diff := cmp.Diff(c.expected(w.query, w.after), w.events); diff != "" {
			t.Fatalf("a watch of %+v after %d (-want +got):\n%s", w.query, w.after, diff)
		}
	}
	if n := c.hub.Cursors(); n != 0 {
		t.Errorf("%d cursors are left", n)
	}
	if stats := c.hub.counts.Stats(); stats.Open != 0 || stats.Ended[EndShutdown] != uint64(len(clients)) {
		t.Errorf("counted %+v of %d", stats, len(clients))
	}
}

// TestLargeObjectsAreShared: whoever is told of a large object, and has not read it yet, holds a few
// bytes of its own; also if the object has left the selection.
func TestLargeObjectsAreShared(t *testing.T) {
	const size, clients = 1 << 20, 100
	c := newCluster(t, 1)
	selected := queries(t)["a label"]
	pad := strings.Repeat("x", size/2)
	large := func(app string, revision uint64) *index.Object {
		o := c.object("n1", "p1", app, "node0", revision)
		o.Bytes = fmt.Appendf(nil, `{"a":%q,%s,"z":%q}`, pad, o.Bytes[1:len(o.Bytes)-1], pad)
		return o
	}
	small := c.object("n1", "p0", "1", "node0", 11)
	c.change(11, index.Change{After: small})
	was := large("1", 12)
	c.change(12, index.Change{After: was})
	c.change(13, index.Change{Before: was, After: large("2", 13)})
	c.change(14, index.Change{Before: small, After: c.object("n1", "p0", "1", "node1", 14)})
	var read []Batch
	for range clients {
		w := c.watch(selected, Options{After: 10})
		for range 4 {
			var b Batch
			w.Take(t.Context(), &b)
			read = append(read, b)
		}
		if diff := cmp.Diff([]string{"ADDED", "ADDED", "DELETED", "MODIFIED"}, kindsOf(read[len(read)-4:])); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
	total, own := 0, 0
	for _, b := range read {
		total += b.Size()
		own += cap(b.copied)
	}
	if total < 2*size*clients || own > clients*len(read[:4])*2*batchSize {
		t.Errorf("of %d bytes that are told, %d are copied", total, own)
	}
}

// TestNewestIsWrittenOnce: all who are told of the newest change are told the same bytes, and each
// what it selects: the change adds the object for one, and removes it for another.
func TestNewestIsWrittenOnce(t *testing.T) {
	const clients = 10
	c := newCluster(t, 1)
	was := c.object("n1", "p1", "1", "node0", 11)
	c.change(11, index.Change{After: was})
	c.change(12, index.Change{Before: was, After: c.object("n1", "p1", "2", "node0", 12)})
	kinds := map[string]string{"": "MODIFIED", "1": "DELETED", "2": "ADDED"}
	read := map[string][]Batch{}
	for range clients {
		for app := range kinds {
			query := index.Query{}
			if app != "" {
				query.Labels = labels.SelectorFromSet(labels.Set{"app": app})
			}
			w := c.watch(query, Options{After: 11})
			var b Batch
			if end := w.Take(t.Context(), &b); end != "" || b.More {
				t.Errorf("ended as %q, more: %t", end, b.More)
			}
			read[app] = append(read[app], b)
		}
	}
	for app, kind := range kinds {
		if diff := cmp.Diff(slices.Repeat([]string{kind}, clients), kindsOf(read[app])); diff != "" {
			t.Errorf("app=%s (-want +got):\n%s", app, diff)
		}
		for _, b := range read[app] {
			if len(b.newest) == 0 || &b.newest[0] != &read[app][0].newest[0] {
				t.Errorf("app=%s: written anew", app)
			}
		}
	}
}

// kindsOf are the types of the events, of which each batch has one.
func kindsOf(batches []Batch) []string {
	var kinds []string
	for _, b := range batches {
		for part := range b.Parts {
			if kind, found := bytes.CutPrefix(part, []byte(`{"type":"`)); found {
				kinds = append(kinds, string(kind[:bytes.IndexByte(kind, '"')]))
			}
		}
	}
	return kinds
}

// TestBehind: a client that does not read until the history has forgotten what it was to be told
// has an unbroken beginning, and its end. Another that is not concerned goes on.
func TestBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		o := c.object("n1", "x", "1", "node1", 11)
		c.change(11, index.Change{After: o})
		all, other := c.watch(queries(t)["all"], Options{After: 10}), c.watch(index.Query{Scope: index.Scope{Namespace: "elsewhere"}}, Options{After: 10})
		all.take(t.Context())
		other.take(t.Context())
		for i := range uint64(20) {
			next := c.object("n1", "x", "1", "node1", 12+i)
			c.change(12+i, index.Change{Before: o, After: next})
			o = next
		}
		synctest.Wait()
		if got := c.hub.Behind(); got != 20 {
			t.Errorf("the furthest is %d behind, not 20", got)
		}
		c.trim(5)
		synctest.Wait()
		if all.take(t.Context()) || all.end != EndBehind {
			t.Errorf("told %q, ended with %q", all.events, all.end)
		}
		expect.Same(t, c.expected(all.query, 10)[:1], all.events)
		c.change(40, index.Change{After: c.object("elsewhere", "y", "1", "", 40)})
		synctest.Wait()
		other.take(t.Context())
		if other.end != "" || len(other.events) != 1 {
			t.Errorf("a client that was not concerned was told %q, and ended with %q", other.events, other.end)
		}
	})
}

// TestNothingBeforeTheSpan: what cannot be told without a gap is not begun.
func TestNothingBeforeTheSpan(t *testing.T) {
	c := newCluster(t, 1)
	for range 50 {
		c.write()
	}
	c.trim(10)
	filter := index.NewFilter(c.hub.Form().Frame, index.Query{})
	for _, after := range []uint64{0, c.span.Versions.Forgotten() - 1, c.span.To + 1} {
		if c.hub.Watch(Options{After: after, Filter: filter, Timeout: time.Hour}) != nil {
			t.Errorf("a watch after %d began in [%d, %d]", after, c.span.From, c.span.To)
		}
	}
	c.renew()
	if c.hub.Watch(Options{After: c.span.To - 1, Filter: filter, Timeout: time.Hour}) != nil {
		t.Error("a watch began before the state that was loaded")
	}
	c.hub.End(false)
	if c.hub.Watch(Options{After: c.span.To, Filter: filter, Timeout: time.Hour}) != nil {
		t.Error("a watch began in a span that is lost")
	}
}

// TestBehindItsState: who reads its state until what came after it is forgotten is told all of it
// nevertheless, if that does not take too long. If the state is in doubt, no more of it is told.
func TestBehindItsState(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(*cluster)
		early   Ending // before stateFor is over
		late    Ending
		newest  Ending // of who reads the newest state
	}{
		"nothing is forgotten":     {happens: func(*cluster) {}},
		"the next change is":       {happens: func(c *cluster) { c.trim(2) }, late: EndBehind},
		"the state is loaded anew": {happens: (*cluster).renew, late: EndBehind, newest: EndBehind},
		"it is in doubt":           {happens: func(c *cluster) { c.hub.End(true) }, early: EndLost, late: EndLost, newest: EndLost},
	} {
		runInBubble(t, name, func(t *testing.T, c *cluster) {
			w := c.watch(queries(t)["a namespace"], Options{After: 10})
			for i := range uint64(3) {
				c.change(11+i, index.Change{After: c.object("elsewhere", fmt.Sprint(i), "1", "", 11+i)})
			}
			newest := c.watch(queries(t)["all"], Options{After: c.span.To})
			tt.happens(c)
			expect.Same(t, tt.early, w.Interrupted(t.Context()))
			time.Sleep(stateFor - time.Second)
			expect.Same(t, tt.early, w.Interrupted(t.Context()))
			time.Sleep(time.Second)
			expect.Same(t, tt.late, w.Interrupted(t.Context()))
			expect.Same(t, tt.newest, newest.Interrupted(t.Context()))
		})
	}
}

// TestEndsAfterTheState: those whose history was forgotten while they read their states end apart, and
// none within a second after it was told its state: client-go would list then.
func TestEndsAfterTheState(t *testing.T) {
	const clients = 100
	for name, happens := range map[string]func(*cluster){
		"forgotten":                     func(c *cluster) { c.trim(1) },
		"the span is lost":              func(c *cluster) { c.hub.End(false) },
		"forgotten, the span is lost":   func(c *cluster) { c.trim(1); c.hub.End(false) },
		"the state is in doubt by then": func(c *cluster) { c.hub.End(true) },
		"shutdown":                      func(c *cluster) { c.hub.EndWithin(longestEnd, EndShutdown) },
	} {
		runInBubble(t, name, func(t *testing.T, c *cluster) {
			all := c.clients(clients, "n1", Options{})
			c.add("n2")
			c.add("n2")
			happens(c)
			time.Sleep(longestEnd - time.Second) // for most, the end was planned earlier
			told := time.Now()
			ends := make(chan time.Time, clients)
			for _, w := range all {
				go func() {
					w.InitialSent()
					w.readOn(t.Context())
					w.Close(w.AwaitEnd(t.Context(), w.end))
					ends <- time.Now()
				}()
			}
			for range clients {
				if after := (<-ends).Sub(told); after < atLeast || after > atLeast+longestEnd {
					t.Errorf("one ends %v after it was told its state", after)
				}
			}
		})
	}
}

// TestManyBehind: those that are behind at the same moment end apart.
func TestManyBehind(t *testing.T) {
	const clients = 500
	inBubble(t, func(t *testing.T, c *cluster) {
		all := c.clients(clients, "n1", Options{})
		c.add("n1")
		c.add("n1")
		c.trim(1)
		time.Sleep(time.Minute)
		begun, ends := time.Now(), make(chan time.Time, clients)
		for _, w := range all {
			if w.take(t.Context()) || w.end != EndBehind {
				t.Fatalf("told %q, ended as %q", w.events, w.end)
			}
			go func() {
				end := w.AwaitEnd(t.Context(), w.end)
				if end != EndBehind {
					t.Errorf("ended as %q", end)
				}
				w.Close(end)
				ends <- time.Now()
			}()
		}
		in := map[time.Duration]int{}
		for range clients {
			in[(<-ends).Sub(begun).Truncate(time.Second)]++
		}
		for second, n := range in {
			if n > 2*endsPerSecond || second > longestEnd {
				t.Errorf("%d end in the second after %v", n, second)
			}
		}
	})
}

// TestQuietHistory: where nothing changes, history begins ever later, and nothing is forgotten. Who
// resumes at the newest change can, and who was told of it goes on.
func TestQuietHistory(t *testing.T) { synctest.Test(t, testQuietHistory) }

func testQuietHistory(t *testing.T) {
	c := newCluster(t, 1)
	all := queries(t)["all"]
	early := c.watch(all, Options{After: 10})
	o := c.object("n1", "x", "1", "", 20)
	c.change(20, index.Change{After: o})
	reading := c.watch(all, Options{After: 20}) // its state, for as long as all this takes
	c.span.From, c.span.To = 90, 90
	c.span.Versions.Forget(1)
	c.hub.Publish(c.span)
	resumed, next := c.watch(all, Options{After: 20}), c.object("n1", "x", "2", "", 100)
	c.change(100, index.Change{Before: o, After: next})
	synctest.Wait()
	for w, want := range map[*client]int{early: 2, reading: 1, resumed: 1} {
		for w.take(t.Context()) {
		}
		if w.end != "" || len(w.events) != want {
			t.Errorf("after %d: told %q, ended with %q", w.after, w.events, w.end)
		}
	}
	if c.hub.Watch(Options{After: 9, Filter: early.filter, Timeout: time.Hour}) != nil {
		t.Error("a watch began before all that was ever known")
	}
}

// TestBookmarks: one a minute, and one before the timeout; each at the newest revision, after all
// events up to it, and never at the watch's own.
func TestBookmarks(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		quiet := c.watch(queries(t)["all"], Options{After: 10, Bookmarks: true, Timeout: 150 * time.Second})
		never := c.watch(queries(t)["all"], Options{After: 10, Timeout: 150 * time.Second})
		read := func() {
			synctest.Wait()
			for quiet.take(t.Context()) {
			}
			for never.take(t.Context()) {
			}
		}
		read()
		time.Sleep(62 * time.Second)
		read()
		if len(quiet.bookmarks) > 0 {
			t.Errorf("bookmarks %d where nothing has happened", quiet.bookmarks)
		}
		c.span.To = 17
		c.hub.Publish(c.span)
		time.Sleep(62 * time.Second)
		read()
		if diff := cmp.Diff([]uint64{17}, quiet.bookmarks); diff != "" {
			t.Errorf("after two minutes (-want +got):\n%s", diff)
		}
		c.change(20, index.Change{After: c.object("n1", "x", "1", "node1", 20)})
		time.Sleep(24*time.Second + 500*time.Millisecond) // until 1.5 s before the timeout
		read()
		if diff := cmp.Diff([]uint64{17, 20}, quiet.bookmarks); diff != "" || quiet.end != "" {
			t.Errorf("before the timeout, ended: %q (-want +got):\n%s", quiet.end, diff)
		}
		time.Sleep(2 * time.Second)
		read()
		if quiet.end != EndTimeout || never.end != EndTimeout {
			t.Errorf("ended with %q and %q", quiet.end, never.end)
		}
		if len(never.bookmarks) > 0 || len(never.events) != 1 || len(quiet.events) != 1 {
			t.Errorf("without bookmarks: %d, events %q and %q", never.bookmarks, never.events, quiet.events)
		}
	})
}

// TestBookmarkAfterManyEvents: one that is due where more is to be told than at once comes after all
// of it.
func TestBookmarkAfterManyEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(queries(t)["all"], Options{After: 10, Bookmarks: true})
		for range 1000 {
			c.write()
		}
		time.Sleep(62 * time.Second)
		synctest.Wait()
		takes := 0
		for w.take(t.Context()) {
			takes++
		}
		if diff := cmp.Diff([]uint64{c.span.To}, w.bookmarks); diff != "" || takes < 2 {
			t.Errorf("after taking %d times (-want +got):\n%s", takes, diff)
		}
	})
}

// TestALostSpanIsLetGo: where nothing more is told, the history is held by no cursor that has still
// to end.
func TestALostSpanIsLetGo(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(queries(t)["all"], Options{After: 10})
		for range 100 {
			c.write()
		}
		c.hub.End(true)
		if span := c.hub.published.Load(); span.Versions.Len() != 0 || span.To != c.span.To {
			t.Errorf("%d versions are held, up to %d", span.Versions.Len(), span.To)
		}
		w.readOn(t.Context())
		if w.end != EndLost || len(w.events) != 0 || w.Interrupted(t.Context()) != EndLost {
			t.Errorf("it ended as %s after %d events", w.end, len(w.events))
		}
	})
}

// TestLostSpan: all end within seconds and not at once, none in its first second, with all events
// that were proven, or with none that is in doubt.
func TestLostSpan(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		runInBubble(t, fmt.Sprintf("doubt=%t", doubt), func(t *testing.T, c *cluster) {
			begun, ends, want := time.Now(), make(chan time.Time, 1000), 0
			all := c.clients(1000, "n1", Options{})
			for _, w := range all {
				w.follow(t, ends)
			}
			synctest.Wait()
			if doubt {
				c.hub.End(true)
			}
			c.add("n1")
			if !doubt {
				want = 1
				c.hub.End(false)
			}
			var at []time.Duration
			for range all {
				at = append(at, (<-ends).Sub(begun))
			}
			for _, w := range all {
				if got := len(w.events); got != want {
					t.Fatalf("told %d events, not %d", got, want)
				}
			}
			if first, last := slices.Min(at), slices.Max(at); first < atLeast || last < 3*time.Second || last > atLeast+longestEnd {
				t.Errorf("ended between %v and %v", first, last)
			}
			synctest.Wait()
			if n := c.hub.Cursors(); n != 0 {
				t.Errorf("%d cursors are left", n)
			}
		})
	}
}

// TestManyLostSpans: the ends of all hubs with one pacer are spread together, and where it matters
// more when all have ended, within that time.
func TestManyLostSpans(t *testing.T) {
	const hubs, each = 20, 90
	for name, tt := range map[string]struct {
		end  func(*Hub)
		last time.Duration
		most int // in any second
	}{
		"lost":             {func(h *Hub) { h.End(false) }, longestEnd, endsPerSecond * 3 / 2},
		"shutdown":         {func(h *Hub) { h.EndWithin(3*time.Second, EndShutdown) }, 3 * time.Second, hubs * each / 2},
		"lost, then ended": {func(h *Hub) { h.End(false); h.EndWithin(3*time.Second, EndShutdown) }, 3 * time.Second, hubs * each / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pacer Pacer
				var all []*Hub
				ends := make(chan time.Time, hubs*each)
				for range hubs {
					c := newCluster(t, 1)
					c.hub = NewHub(testForm(t), c.span, &Counts{}, &pacer)
					all = append(all, c.hub)
					for _, w := range c.clients(each, "n1", Options{}) {
						w.follow(t, ends)
					}
				}
				time.Sleep(atLeast)
				begun := time.Now()
				for _, h := range all {
					tt.end(h)
				}
				in := map[time.Duration]int{}
				for range hubs * each {
					after := (<-ends).Sub(begun)
					in[after.Truncate(time.Second)]++
					if after > tt.last {
						t.Errorf("one ends after %v", after)
					}
				}
				for second, n := range in {
					if n > tt.most {
						t.Errorf("%d end in the second after %v", n, second)
					}
				}
			})
		})
	}
}

// TestWhoWakes: only those wake whose bucket a change touches.
func TestWhoWakes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		names := map[*client]string{}
		for name, q := range queries(t) {
			w := c.watch(q, Options{After: 10})
			w.take(t.Context())
			names[w] = name
		}
		before := c.object("n1", "p1", "0", "node0", 11)
		c.change(11, index.Change{After: before})
		woken := func() []string {
			synctest.Wait()
			var woken []string
			for w, name := range names {
				if w.due.Load() != 0 {
					woken = append(woken, name)
				}
				for w.take(t.Context()) {
				}
			}
			slices.Sort(woken)
			return woken
		}
		// What is not wanted has no bucket of its own.
		always := []string{"all", "not a label", "not a node"}
		for _, tt := range []struct {
			change index.Change
			want   []string
		}{
			{index.Change{}, []string{"a namespace"}},
			{index.Change{Before: before, After: c.object("n1", "p1", "1", "node0", 12)}, []string{"a namespace", "a label"}},
			{index.Change{Before: c.object("n0", "p2", "0", "node1", 1), After: c.object("n0", "p2", "0", "node2", 13)}, []string{"a name", "a namespace's field", "a node"}},
			{index.Change{After: c.object("n1", "p2", "2", "", 14)}, []string{"a name", "a namespace", "an object"}},
			{index.Change{Before: c.object("n2", "p", "1", "", 14), After: c.object("n2", "p", "1", "", 15), Deleted: true}, []string{"a label", "a label and namespace"}},
		} {
			if tt.change.After != nil {
				c.change(tt.change.After.Revision, tt.change)
			}
			want := append(slices.Clone(always), tt.want...)
			slices.Sort(want)
			if diff := cmp.Diff(want, woken()); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", tt.change.After, diff)
			}
		}
	})
}

// TestLargeLabels: a set of labels that is not walked over wakes those who look for one of its labels,
// and nobody else.
func TestLargeLabels(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, tt := range []struct {
			namespace, app string
			want           []string
		}{
			{"n2", "1", []string{"a label", "a label and namespace"}},
			{"n0", "1", []string{"a label"}},
			{"n2", "2", nil},
			{"n2", "", nil}, // without that label
		} {
			var pairs []string
			if tt.app != "" {
				pairs = []string{"app", tt.app}
			}
			for i := range wire.ManyLabels {
				pairs = append(pairs, fmt.Sprint("l", i), "x")
			}
			all := map[string]*client{}
			for _, name := range []string{"a label", "a label and namespace", "a name"} {
				all[name] = c.watch(queries(t)[name], Options{After: c.span.To})
				all[name].take(t.Context())
			}
			o := c.object(tt.namespace, "x", "", "", c.span.To+1)
			o.Labels = wire.MustLabels(pairs...)
			c.change(o.Revision, index.Change{After: o})
			synctest.Wait()
			var woken []string
			for name, w := range all {
				if w.due.Load() != 0 {
					woken = append(woken, name)
				}
				if told := w.take(t.Context()); told != slices.Contains(tt.want, name) {
					t.Errorf("%s/app=%s is told to who watches %s: %t", tt.namespace, tt.app, name, told)
				}
			}
			slices.Sort(woken)
			if diff := cmp.Diff(tt.want, woken); diff != "" {
				t.Errorf("%s/app=%s wakes (-want +got):\n%s", tt.namespace, tt.app, diff)
			}
		}
	})
}

// TestCutBeforeItWasLookedAt: the history forgets a change that the hub has not looked at. Whoever
// it may have been for ends. The change at which the history now begins is still told.
func TestCutBeforeItWasLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		forgotten, kept := c.watch(queries(t)["a namespace"], Options{After: 10}), c.watch(index.Query{Scope: index.Scope{Namespace: "n2"}}, Options{After: 10})
		for _, w := range []*client{forgotten, kept} {
			w.take(t.Context())
		}
		first, second := c.object("n1", "x", "1", "", 11), c.object("n2", "y", "1", "", 12)
		c.span.Versions.Append(index.Version{Revision: 11, Tree: c.state.Clone(), Change: index.Change{After: first}})
		c.span.Versions.Append(index.Version{Revision: 12, Tree: c.state.Clone(), Change: index.Change{After: second}})
		c.span.Versions.Forget(2)
		c.span.From, c.span.To = 12, 12
		c.hub.Publish(c.span)
		synctest.Wait()
		for _, w := range []*client{forgotten, kept} {
			if w.take(t.Context()) || w.end != EndBehind {
				t.Errorf("told %q and %d, ended with %q: a change before was not looked at", w.events, w.bookmarks, w.end)
			}
		}
	})
}

// TestBookmarkBeforeItWasLookedAt: a bookmark that is due names no revision whose changes the hub has
// not looked at: nobody knows yet whether one of them is for the client.
func TestBookmarkBeforeItWasLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{}, Options{After: 10, Bookmarks: true})
		w.take(t.Context())
		c.hub.mu.Lock() // so it cannot look
		c.change(11, index.Change{After: c.object("n1", "x", "1", "", 11)})
		w.bookmarkDue.Store(true)
		w.take(t.Context())
		if len(w.events)+len(w.bookmarks) > 0 {
			t.Errorf("told %q, and bookmarks at %d", w.events, w.bookmarks)
		}
		c.hub.mu.Unlock()
		synctest.Wait()
		if w.take(t.Context()); len(w.events) != 1 {
			t.Errorf("told %q", w.events)
		}
	})
}

// TestTightMemory: the history is cut behind each change, before anybody has looked at it. Who is told
// of the last change goes on, and so does everybody who was to be told nothing. Revisions in between
// are those of other resources.
func TestTightMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		in := func(namespace string) *client {
			w := c.watch(index.Query{Scope: index.Scope{Namespace: namespace}}, Options{After: 10})
			w.take(t.Context())
			return w
		}
		first, second, none := in("n1"), in("n2"), in("n3")
		write := func(namespace string, revision uint64) {
			c.change(revision, index.Change{After: c.object(namespace, "x", "1", "", revision)})
			c.trim(1)
		}
		all := map[*client]string{first: "the first", second: "the second", none: "neither"}
		write("n1", 20)
		synctest.Wait()
		for w, of := range all {
			if w.take(t.Context()); w.end != "" || (len(w.events) == 1) != (w == first) {
				t.Errorf("of %s: told %q, ended with %q", of, w.events, w.end)
			}
		}
		write("n1", 30)
		write("n2", 40)
		synctest.Wait()
		for w, of := range all {
			if w.take(t.Context()); (w.end == EndBehind) != (w == first) || (len(w.events) == 1) != (w != none) {
				t.Errorf("of %s: told %q, ended with %q", of, w.events, w.end)
			}
		}
	})
}

// TestTheFirstThatIsKept: the history begins at the very change that a client is to be told.
func TestTheFirstThatIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(index.Query{Scope: index.Scope{Namespace: "n2"}}, Options{After: 10})
		w.take(t.Context())
		c.change(11, index.Change{After: c.object("n1", "x", "1", "", 11)})
		c.change(12, index.Change{After: c.object("n2", "y", "1", "", 12)})
		synctest.Wait() // it is due at 12
		c.trim(1)
		synctest.Wait()
		if w.take(t.Context()); w.end != "" || len(w.events) != 1 {
			t.Errorf("told %q, ended with %q", w.events, w.end)
		}
	})
}

// TestLastWords: a client that reads slowly is told what is left of a lost span for some seconds,
// and no longer.
func TestLastWords(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		w := c.watch(queries(t)["all"], Options{After: 10})
		for i := range uint64(100) {
			o := c.object("n1", strings.Repeat("x", 20_000), "1", "", 11+i)
			c.change(11+i, index.Change{After: o})
		}
		c.hub.End(false)
		time.Sleep(atLeast + time.Second) // the end of one client comes within a second
		begun := time.Now()
		for w.end == "" {
			w.take(t.Context())
			time.Sleep(2 * time.Second)
		}
		if took := time.Since(begun); took > drainFor+4*time.Second || w.end != EndLost {
			t.Errorf("ended with %q after %v", w.end, took)
		}
		if n := len(w.events); n == 0 || n == 100 {
			t.Errorf("told %d of 100 events", n)
		}
	})
}

// TestLastWordsAreNotCut: who is being told what is left of a lost span is told all of it, and the
// last bookmark, even if the process ends meanwhile.
func TestLastWordsAreNotCut(t *testing.T) {
	for name, happens := range map[string]func(*cluster){
		"nothing happens":  func(*cluster) {},
		"shutdown":         func(c *cluster) { c.hub.EndWithin(longestEnd, EndShutdown) },
		"shutdown at once": func(c *cluster) { c.hub.EndWithin(0, EndShutdown) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const events = 10
				c := newCluster(t, 1)
				w := c.watch(index.Query{}, Options{After: 10, Bookmarks: true})
				for i := range uint64(events) {
					o := c.object("n1", fmt.Sprint(i), "1", "", 11+i)
					o.Bytes = fmt.Appendf(nil, `{"pad":%q,%s`, strings.Repeat("x", batchSize*3/4), o.Bytes[1:]) // one in each batch
					c.change(11+i, index.Change{After: o})
				}
				c.hub.End(false)
				time.Sleep(atLeast + 2*time.Second) // its moment has come
				w.take(t.Context())
				happens(c)
				synctest.Wait()
				for w.take(t.Context()) {
				}
				if len(w.events) != events || len(w.bookmarks) != 1 || w.end != EndLost {
					t.Errorf("told %d of %d events, bookmarks %d, ended as %q", len(w.events), events, w.bookmarks, w.end)
				}
				w.Close(w.end)
			})
		})
	}
}

// TestLastBookmark: a client that wants bookmarks gets one when it is ended, at all that is known, so
// that it resumes there and not where something last happened that was for it. In doubt it gets none.
func TestLastBookmark(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*Hub)
		want []uint64
	}{
		{"shutdown", func(h *Hub) { h.EndWithin(longestEnd, EndShutdown) }, []uint64{25}},
		{"lost", func(h *Hub) { h.End(false) }, []uint64{25}},
		{"doubt", func(h *Hub) { h.End(true) }, nil},
	} {
		runInBubble(t, tt.name, func(t *testing.T, c *cluster) {
			quiet := c.watch(queries(t)["a label"], Options{After: 10, Bookmarks: true})
			never := c.watch(queries(t)["a label"], Options{After: 10})
			c.change(20, index.Change{After: c.object("n1", "x", "2", "node1", 20)})
			c.span.To = 25
			c.hub.Publish(c.span)
			synctest.Wait()
			tt.end(c.hub)
			quiet.readOn(t.Context())
			never.readOn(t.Context())
			if diff := cmp.Diff(tt.want, quiet.bookmarks); diff != "" {
				t.Errorf("bookmarks (-want +got):\n%s", diff)
			}
			if len(never.bookmarks) > 0 || len(never.events)+len(quiet.events) > 0 {
				t.Errorf("without bookmarks: %d, and events %q, %q", never.bookmarks, never.events, quiet.events)
			}
		})
	}
}

// TestFormTakesInBoth: how bookmarks are written and how items are is learned in two goroutines, and
// neither is lost.
func TestFormTakesInBoth(t *testing.T) {
	for range 2000 {
		h := NewHub(Form{}, Span{}, new(Counts), new(Pacer))
		var both sync.WaitGroup
		both.Go(func() { h.Learn(new(wire.Bookmark)) })
		both.Go(func() { h.Reframe(new(wire.Frame)) })
		both.Wait()
		if f := h.Form(); f.Plain == nil || f.Frame == nil {
			t.Fatalf("one of them is lost: %+v", f)
		}
	}
}
