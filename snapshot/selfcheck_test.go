package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// library is an API server in memory with many config maps, which answers any page of them exactly.
// Its watches stay open and are silent, until the test writes.
type library struct {
	// instead, if it is not nil and says so, answers a self-check's request in the library's place.
	instead func(r *http.Request) (code int, body string)

	mu       sync.Mutex
	shards   bool // it knows them
	revision uint64
	objects  map[string]string // by key: the value of data
	revs     map[string]uint64
	loads    int
	checks   []string // self-checks' requests: representation and where they begin
}

func newLibrary(n int) *library {
	l := &library{revision: 10, shards: true, objects: map[string]string{}, revs: map[string]uint64{}}
	for i := range n {
		l.revision++
		key := fmt.Sprintf("n/%04d", i)
		l.objects[key], l.revs[key] = "value", l.revision
	}
	return l
}

// writtenAs is that an object is written with other data from now on, without any event.
func (l *library) writtenAs(key, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[key] = value
}

// asked returns the self-checks' requests.
func (l *library) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.checks)
}

func (l *library) item(key string, metadata bool) string {
	_, name := index.SplitKey(key)
	meta := fmt.Sprintf(`"metadata":{"name":"%s","namespace":"n","resourceVersion":"%d"}`, name, l.revs[key])
	if metadata {
		return `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` + meta + `}`
	}
	return `{` + meta + `,"data":{"key":"` + l.objects[key] + `"}}`
}

// loaded is how often the state was loaded.
func (l *library) loaded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loads
}

// RoundTrip implements http.RoundTripper.
func (l *library) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	query, accept := r.URL.Query(), r.Header.Get("Accept")
	checks := query.Get("continue") != "" || query.Get("resourceVersionMatch") == "Exact" && query.Get("limit") != "2"
	if checks {
		l.checks = append(l.checks, strings.Fields(accept)[0]+" "+query.Get("continue"))
		if l.instead != nil {
			if code, body := l.instead(r); code != 0 {
				return answered(r, code, body), nil
			}
		}
	}
	switch {
	case strings.Contains(accept, "protobuf"):
		return answered(r, http.StatusNotAcceptable, ""), nil
	case query.Get("sendInitialEvents") != "":
		l.loads++
		var events strings.Builder
		for _, key := range slices.Sorted(maps.Keys(l.objects)) {
			events.WriteString(inEvent("ADDED", l.item(key, false)))
		}
		events.WriteString(bookmark(l.revision, `,"annotations":{"k8s.io/initial-events-end":"true"}`))
		return inJSON(r, silentAfter(r.Context(), events.String())), nil
	case query.Get("watch") != "" && query.Get("fieldSelector") != "":
		_, name, _ := strings.Cut(query.Get("fieldSelector"), "=")
		return answered(r, http.StatusOK, inEvent("ADDED", l.item("n/"+name, false))), nil
	case query.Get("watch") != "":
		return inJSON(r, silentAfter(r.Context(), "")), nil
	}
	return answered(r, http.StatusOK, l.page(query, strings.Contains(accept, "PartialObjectMetadataList"))), nil
}

// page is a page of a list.
func (l *library) page(query url.Values, metadata bool) string {
	kind := `"kind":"ConfigMapList","apiVersion":"v1"`
	if metadata {
		kind = `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`
	}
	_, start, _ := strings.Cut(query.Get("continue"), ":")
	limit, _ := strconv.Atoi(query.Get("limit")) // or none
	var items []string
	more, remaining := "", 0
	for _, key := range slices.Sorted(maps.Keys(l.objects)) {
		switch {
		case key < start || query.Has("fieldSelector"):
		case limit > 0 && len(items) == limit:
			remaining++
		default:
			items = append(items, l.item(key, metadata))
		}
	}
	if remaining > 0 {
		more = fmt.Sprintf(`,"continue":"next","remainingItemCount":%d`, remaining)
	}
	if of := query.Get("shardSelector"); of != "" && l.shards && !metadata {
		more += fmt.Sprintf(`,"shardInfo":{"selector":%q}`, of)
	}
	return fmt.Sprintf(`{%s,"metadata":{"resourceVersion":"%d"%s},"items":[%s]}`+"\n", kind, l.revision, more, strings.Join(items, ","))
}

// silentAfter is a body that says something and then nothing until ctx ends.
func silentAfter(ctx context.Context, said string) io.ReadCloser {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(said), in), in}
}

const checkEvery = time.Minute

// checked is a collection of a library that is checked.
type checked struct {
	*library
	collections *Collections
	log         *bytes.Buffer
	resource    Resource
}

func newChecked(t *testing.T, l *library) *checked {
	t.Helper()
	return newCheckedEvery(t, l, checkEvery)
}

func newCheckedEvery(t *testing.T, l *library, every time.Duration) *checked {
	t.Helper()
	c := &checked{library: l, log: &bytes.Buffer{}, resource: resourceNamed("configmaps")}
	c.collections = collectionsOf(t, l, func(config *Config) {
		config.SelfCheck, config.Log = every, slog.New(slog.NewTextHandler(c.log, nil))
		config.ContinueToken = func(revision uint64, start string) string { return fmt.Sprintf("%d:%s", revision, start) }
	})
	c.use(t)
	synctest.Wait()
	return c
}

// definitionChanged is that the resource is defined in another way.
func (c *checked) definitionChanged() Invalidation {
	return Invalidation{Cause: Definition, Scope: OfResource(c.resource.GroupResource()), Until: For(time.Minute)}
}

func (c *checked) use(t *testing.T) *Collection {
	t.Helper()
	collection, absence := c.collections.Use(c.resource)
	if absence != reason.None {
		t.Fatal(absence)
	}
	return collection
}

// await lets time pass until so many checks have ended.
func (c *checked) await(number int) checks.Stats {
	for {
		total := uint64(0)
		for _, n := range c.collections.SelfChecks() {
			total += n
		}
		if total >= uint64(number) { // #nosec G115 -- a count
			return c.collections.checks.Stats(c.resource)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

// corrupt changes the newest state in memory, as no feed would.
func corrupt(c *Collection, change func(index.Tree)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	state := v.newest.Clone()
	change(state)
	c.versions.At(c.versions.Len() - 1).Tree = state
	c.publishLocked(v.with(func(v *View) { v.newest = state }))
}

// TestSelfCheckFindsWhatIsWrong in memory, wherever it is; the answers are right afterwards.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(index.Tree)
		says   string
	}{
		{"one byte", func(state index.Tree) {
			o, _ := state.Get("n/1100")
			changed := *o
			changed.Bytes = bytes.Replace(o.Bytes, []byte("value"), []byte("valuf"), 1)
			state.Set(&changed)
		}, "n/1100 has other bytes"},
		{"a revision", func(state index.Tree) {
			o, _ := state.Get("n/1100")
			changed := *o
			changed.Revision--
			state.Set(&changed)
		}, "n/1100 is of revision 1110, upstream of 1111"},
		{"a missing object", func(state index.Tree) { state.Remove("n/1100") }, "n/1100 is missing"},
		{"the last object is missing", func(state index.Tree) { state.Remove("n/1199") }, "n/1199 is missing"},
		{"an object too many", func(state index.Tree) {
			state.Set(index.NewObject(0, "n/1100x", 700, []byte(`{"metadata":{"name":"1100x"}}`)))
		}, "n/1100x is not there upstream"},
		{"labels in the index", func(state index.Tree) {
			o, _ := state.Get("n/1100")
			o.Labels = wire.MustLabels("app", "x")
		}, "n/1100 has other labels in the index"},
		{"what stands beside the bytes", func(state index.Tree) {
			o, _ := state.Get("n/1100")
			changed := *o
			changed.Labels, _ = wire.MakeLabels([]string{"app", "x"}) // no label twice
			state.Set(&changed)
		}, "n/1100 is not what its bytes say"},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := newChecked(t, newLibrary(1200))
			wrong := c.use(t)
			if stats := c.await(1); stats.Result != checks.Agrees || stats.Revision != c.revision {
				t.Fatalf("before: %+v", stats)
			}
			corrupt(wrong, tt.change)
			stats := c.await(4) // each compares a third of the bytes
			if stats.Mismatches != 1 {
				t.Fatalf("got %+v; log:\n%s", stats, c.log)
			}
			if why := wrong.whyRetired(); why != reason.Warming {
				t.Errorf("what was wrong is retired: %q", why)
			}
			if log := c.log.String(); !strings.Contains(log, tt.says) || strings.Contains(log, "valu") {
				t.Errorf("the log is to say %q, and nothing of the object:\n%s", tt.says, log)
			}
			s, absence := c.use(t).Latest(t.Context(), 0)
			if absence != reason.None {
				t.Fatalf("loaded again: %q", absence)
			}
			var got []string
			for _, o := range s.Page(index.Query{}, nil).Objects {
				got = append(got, string(o.Bytes))
			}
			var want []string
			for _, key := range slices.Sorted(maps.Keys(c.objects)) {
				want = append(want, c.item(key, false))
			}
			expect.Same(t, want, got)
			if all := c.collections.Stats(); len(all) != 1 || all[0].Check.Mismatches != 1 {
				t.Errorf("the numbers for people: %+v", all)
			}
			if all := c.collections.Mismatched(); len(all) != 1 || all[c.resource] != stats || stats.Mismatched.IsZero() {
				t.Errorf("what was ever wrong: %+v", all)
			}
		})
	}
}

// TestAMismatchIsNotForgotten: after checks that agree, and when the collection is long gone, it is
// known how many there were, and when the last was. What was never wrong is not told of.
func TestAMismatchIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, newLibrary(10))
		wrong := c.use(t)
		if stats := c.await(1); stats.Mismatches != 0 || !stats.Mismatched.IsZero() || len(c.collections.Mismatched()) != 0 {
			t.Fatalf("before: %+v, %+v", stats, c.collections.Mismatched())
		}
		corrupt(wrong, func(state index.Tree) { state.Remove("n/0001") })
		at := c.await(2).Mismatched
		if at.IsZero() {
			t.Fatalf("no mismatch; log:\n%s", c.log)
		}
		c.use(t)
		if stats := c.await(3); stats.Result != checks.Agrees || stats.Mismatches != 1 || !stats.Mismatched.Equal(at) || !stats.At.After(at) {
			t.Errorf("loaded again: %+v", stats)
		}
		c.collections.Invalidate(c.definitionChanged())
		time.Sleep(10 * checkEvery) // so that results of what is gone are forgotten
		synctest.Wait()
		if stats := c.collections.Mismatched()[c.resource]; len(c.collections.Stats()) != 0 || stats.Mismatches != 1 || !stats.Mismatched.Equal(at) {
			t.Errorf("gone: %+v", stats)
		}
	})
}

// TestSelfCheckGoesAround: names page by page, and after some checks every object's bytes.
func TestSelfCheckGoesAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, newLibrary(1200))
		c.await(4)
		metadata := media.MetadataJSON.AcceptList()
		var got []string
		for _, request := range c.checks {
			switch accept, start, _ := strings.Cut(request, " "); accept {
			case metadata:
				got = append(got, "names "+start)
			case media.JSONType:
				got = append(got, "bytes "+start)
			default: // protobuf, which there is not
			}
		}
		second := "1210:n/0999\x00"
		if diff := cmp.Diff([]string{
			"names ", "names " + second, "bytes ",
			"names ", "names " + second, "bytes 1210:n/0499\x00",
			"names ", "names " + second, "bytes 1210:n/0999\x00",
			"names ", "names " + second, "bytes ",
		}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestSelfCheckRaisesNoFalseAlarm: what is wrong once, or cannot be read, is no mismatch.
func TestSelfCheckRaisesNoFalseAlarm(t *testing.T) {
	times := func(n int, code int, body string) func(*checked) func(*http.Request) (int, string) {
		return func(*checked) func(*http.Request) (int, string) {
			return func(*http.Request) (int, string) {
				if n--; n < 0 {
					return 0, ""
				}
				return code, body
			}
		}
	}
	other := `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"20"},"items":[]}` + "\n"
	for _, tt := range []struct {
		name    string
		instead func(*checked) func(*http.Request) (int, string)
		want    checks.Result
	}{
		{"gone, then there", times(1, http.StatusGone, ""), checks.Agrees},
		{"not there yet, then there", times(2, http.StatusGatewayTimeout, ""), checks.Agrees},
		{"gone for long", times(2*checkTries, http.StatusGone, ""), checks.Inconclusive},
		{"too many requests", times(1, http.StatusTooManyRequests, ""), checks.Inconclusive},
		{"an error", times(1, http.StatusInternalServerError, ""), checks.Inconclusive},
		{"garbage", times(1, http.StatusOK, "{"), checks.Inconclusive},
		{"another revision", times(1, http.StatusOK, strings.Replace(other, "20", "21", 1)), checks.Inconclusive},
		// Asked for as protobuf it cannot be read, so that JSON is refused first.
		{"another state, once", func(*checked) func(*http.Request) (int, string) {
			n := 0
			return func(r *http.Request) (int, string) {
				if strings.Contains(r.Header.Get("Accept"), "protobuf") {
					return 0, ""
				}
				if n++; n > 1 {
					return 0, ""
				}
				return http.StatusOK, other
			}
		}, checks.Inconclusive},
		{"another state, because the definition changed", func(c *checked) func(*http.Request) (int, string) {
			return func(r *http.Request) (int, string) {
				if strings.Contains(r.Header.Get("Accept"), "protobuf") {
					return 0, ""
				}
				go c.collections.Invalidate(c.definitionChanged())
				return http.StatusOK, other
			}
		}, checks.Inconclusive},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := newChecked(t, newLibrary(10))
			c.instead = tt.instead(c)
			if stats := c.await(1); stats.Result != tt.want || stats.Mismatches != 0 {
				t.Errorf("got %+v, want %q; log:\n%s", stats, tt.want, c.log)
			}
		})
	}
}

// TestWhatIsNeverAnsweredHidesNothing: a page that the upstream does not give keeps no other from
// being looked at.
func TestWhatIsNeverAnsweredHidesNothing(t *testing.T) {
	second := "1210:n/0999\x00"
	for name, unanswered := range map[string]func(metadata bool, page string) bool{
		"a page of bytes": func(metadata bool, page string) bool { return !metadata && page == "1210:n/0499\x00" },
		"a page of names": func(metadata bool, page string) bool { return metadata && page == "" },
		"all names":       func(metadata bool, _ string) bool { return metadata },
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newChecked(t, newLibrary(1200))
			c.instead = func(r *http.Request) (int, string) {
				if unanswered(strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"), r.URL.Query().Get("continue")) {
					return http.StatusInternalServerError, ""
				}
				return 0, ""
			}
			wrong := c.use(t)
			c.await(1)
			corrupt(wrong, func(state index.Tree) {
				o, _ := state.Get("n/1100")
				changed := *o
				changed.Bytes = bytes.Replace(o.Bytes, []byte("value"), []byte("valuf"), 1)
				state.Set(&changed)
			})
			if stats := c.await(5); stats.Mismatches == 0 {
				t.Errorf("got %+v; log:\n%s", stats, c.log)
			}
			if name == "a page of names" && !slices.Contains(c.checks, media.MetadataJSON.AcceptList()+" "+second) {
				t.Errorf("the second page of names was never asked for: %q", c.checks)
			}
		})
	}
}

// TestAMismatchIsConfirmedWhereItIs: on the page that differs, and no other.
func TestAMismatchIsConfirmedWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, newLibrary(1200))
		wrong := c.use(t)
		corrupt(wrong, func(state index.Tree) { state.Remove("n/1100") })
		if stats := c.await(1); stats.Mismatches != 1 {
			t.Fatalf("got %+v; log:\n%s", stats, c.log)
		}
		metadata, second := media.MetadataJSON.AcceptList(), "1210:n/0999\x00"
		var got []string
		for _, request := range c.checks {
			if strings.HasPrefix(request, metadata) {
				got = append(got, strings.TrimPrefix(request, metadata+" "))
			}
		}
		if diff := cmp.Diff([]string{"", second, second}, got); diff != "" {
			t.Errorf("pages of names: -want +got:\n%s", diff)
		}
	})
}

// TestWhatNeverAgreesIsNotKept: where the upstream writes an object in other bytes each time, to
// load it again does not help.
func TestWhatNeverAgreesIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, newLibrary(10))
		c.instead = func(r *http.Request) (int, string) {
			if r.Header.Get("Accept") != media.JSONType {
				return 0, ""
			}
			return http.StatusOK, strings.Replace(c.page(r.URL.Query(), false), "value", "other", 1)
		}
		c.await(1)
		if _, absence := c.use(t).Latest(t.Context(), 0); absence != reason.None || c.loaded() != 2 {
			t.Fatalf("after the first mismatch: %q, loaded %d times", absence, c.loaded())
		}
		if stats := c.await(2); stats.Mismatches != 2 {
			t.Fatalf("got %+v", stats)
		}
		if running := c.collections.Stats(); len(running) != 0 || c.collections.Mismatched()[c.resource].Mismatches != 2 {
			t.Errorf("nothing is kept (%+v), and what was wrong is told all the same: %+v", running, c.collections.Mismatched())
		}
		if _, absence := c.collections.Use(c.resource); absence != reason.Form {
			t.Errorf("after the second: %q, want %q", absence, reason.Form)
		}
		time.Sleep(unlikelyRetry)
		synctest.Wait()
		c.use(t)
		if c.await(3).Mismatches != 3 {
			t.Error("no third mismatch")
		}
		time.Sleep(unlikelyRetry)
		if _, absence := c.collections.Use(c.resource); absence != reason.Form {
			t.Errorf("longer each time: %q, want %q", absence, reason.Form)
		}
	})
}

// TestObjectsAreWhatTheirBytesSay, in each of what stands beside these.
func TestObjectsAreWhatTheirBytesSay(t *testing.T) {
	c := &comparison{source: source.Source{Resource: Resource{Representation: media.JSON}}}
	frame := wire.FixedFrame("PodList", "v1", wire.Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true})
	var many strings.Builder
	for i := range wire.ManyLabels {
		fmt.Fprintf(&many, `"l%d":"v",`, i)
	}
	for _, labels := range []string{`"app":"x"`, many.String() + `"app":"x"`} {
		body := []byte(`{"metadata":{"name":"a","namespace":"n","resourceVersion":"5","labels":{` + labels + `}},"spec":{"nodeName":"n1"}}`)
		m, err := c.source.Encoding().Item(body)
		expect.NoError(t, err)
		other, err := wire.MakeLabels([]string{"app", "y"})
		expect.NoError(t, err)
		for name, change := range map[string]func(*index.Object){
			"":         func(*index.Object) {},
			"labels":   func(o *index.Object) { o.Labels = other },
			"a field":  func(o *index.Object) { o.Fields = []string{"n2"} },
			"revision": func(o *index.Object) { o.Revision++ },
			"key":      func(o *index.Object) { o.Key = "n/b" },
			"bytes":    func(o *index.Object) { o.Bytes = o.Bytes[1:] },
		} {
			o := index.NewObject(1, "n/a", 5, body)
			o.Labels, o.Fields = m.Labels, []string{"n1"}
			change(o)
			if got := c.checkObjects(frame, []*index.Object{o}); (len(got) == 0) != (name == "") {
				t.Errorf("%q changed: %q", name, got)
			}
		}
	}
}
