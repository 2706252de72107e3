package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const thingsPath = "/apis/x.io/v1/things"

// thing is the metadata of an object: what is read of it is its label.
func thing(name, label string, revision int) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"n",`+
		`"resourceVersion":"%d","labels":{"is":%q}}}`, name, revision, label)
}

func readThing(o runtime.Object) (string, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return "", err
	}
	if m.GetLabels()["is"] == "unreadable" {
		return "", fmt.Errorf("%s is unreadable", m.GetName())
	}
	return m.GetLabels()["is"], nil
}

// told is what a reflector has told.
type told struct {
	mu   sync.Mutex
	what []string
}

func (h *told) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.what)
	was := h.what
	h.what = nil
	return was
}

// runThings runs a reflector of things in the bubble.
func runThings(t *testing.T, f *proxytest.FakeAPI, objects ...string) (*reflector[string], *told) {
	t.Helper()
	f.Collections[thingsPath] = &proxytest.FakeCollection{Kind: "PartialObjectMetadataList", Objects: objects}
	client, err := clientOf(f.Config(), 0, metadata.NewForConfigAndClient)
	expect.NoError(t, err)
	h := &told{}
	r := &reflector[string]{
		resource: "things",
		source:   listWatchOf(client.Resource(schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "things"})),
		read:     readThing,
		changed: func(c change[string]) {
			h.mu.Lock()
			defer h.mu.Unlock()
			was, is := "none", "none"
			if c.was != nil {
				was = *c.was
			}
			if c.is != nil {
				is = *c.is
			}
			said := fmt.Sprintf("%s %s to %s", c.name, was, is)
			if c.first {
				said += ", at first"
			}
			h.what = append(h.what, said)
		},
		log: proxytest.DiscardLog(),
	}
	proxytest.RunInBubble(t, r.run)
	return r, h
}

func (r *reflector[V]) current() bool {
	synctest.Wait()
	_, _, current := r.get("")
	return current
}

// TestReflectorTellsWhatChanges: of what is read, from a watch or from a list after a gap.
func TestReflectorTellsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		r, told := runThings(t, f, thing("a", "1", 1), thing("b", "1", 1))
		gap := func(objects ...string) func() {
			return func() {
				f.Hold(thingsPath, objects...)
				f.Cut(thingsPath)
				time.Sleep(6 * time.Second)
			}
		}
		event := func(kind, object string) func() { return func() { f.Event(thingsPath, kind, object) } }
		for _, step := range []struct {
			name string
			do   func()
			want []string
		}{
			{"the first list", func() {}, []string{"n/a none to 1, at first", "n/b none to 1, at first"}},
			{"what is not read", event("MODIFIED", thing("a", "1", 2)), nil},
			{"a bookmark", event("BOOKMARK", thing("a", "2", 3)), nil},
			{"a change", event("MODIFIED", thing("a", "2", 4)), []string{"n/a 1 to 2"}},
			{"a new one", event("ADDED", thing("c", "1", 5)), []string{"n/c none to 1"}},
			{"one goes", event("DELETED", thing("c", "1", 6)), []string{"n/c 1 to none"}},
			{"a gap in which nothing changed", gap(thing("b", "1", 1), thing("a", "2", 7)), nil},
			{"a gap", gap(thing("a", "3", 8), thing("d", "1", 8)), []string{"n/a 2 to 3", "n/b 1 to none", "n/d none to 1"}},
			{"what cannot be read is a gap", event("MODIFIED", thing("a", "unreadable", 9)), nil},
			{"in which nothing changed", func() { time.Sleep(6 * time.Second) }, nil},
			{"an error is one, too", event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`), nil},
			{"and a change after it", func() { time.Sleep(6 * time.Second); f.Event(thingsPath, "MODIFIED", thing("d", "2", 10)) }, []string{"n/d 1 to 2"}},
		} {
			step.do()
			if diff := cmp.Diff(step.want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		expect.Same(t, "map[n/a:3 n/d:2]", fmt.Sprint(r.known))
	})
}

// TestReflectorIsCurrent: what is known counts while a change would be heard of, and for a while after
// the watch has ended. That one stays open which tells nothing is no sign of that.
func TestReflectorIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Collections[thingsPath] = &proxytest.FakeCollection{}
		r, _ := runThings(t, f, thing("a", "1", 1))
		f.Silence(thingsPath, true)
		expect := func(when string, current bool) {
			t.Helper()
			if got := r.current(); got != current || !r.ready() {
				t.Errorf("%s: current %v, ready %v", when, got, r.ready())
			}
		}
		away := func() {
			f.Answer(http.StatusServiceUnavailable, "list "+thingsPath, "watch "+thingsPath)
			f.Cut(thingsPath)
		}
		back := func() { f.Answer(0, "list "+thingsPath, "watch "+thingsPath) }

		expect("listed", true)
		for range 60 {
			time.Sleep(time.Minute)
			f.Event(thingsPath, "BOOKMARK", thing("", "", 7))
			expect("with a bookmark every minute", true)
		}
		for range 3600 {
			time.Sleep(time.Second)
			expect("without a bookmark for an hour", true)
		}
		f.Event(thingsPath, "BOOKMARK", thing("", "", 7))
		f.Stall(thingsPath) // what comes in its place tells nothing either
		time.Sleep(streamSilence + listTimeout - time.Nanosecond)
		expect("silent for a while", true)
		time.Sleep(time.Second)
		expect("silent for too long", false)
		f.Flow(thingsPath)
		time.Sleep(6 * time.Second)
		expect("listed again", true)

		away()
		time.Sleep(snapshot.Skew)
		expect("cut", true)
		time.Sleep(time.Second)
		expect("cut for a while", false)
		time.Sleep(time.Hour)
		if got := f.Asked("list " + thingsPath); got > 2000 {
			t.Errorf("asked %d times in an hour", got)
		}
		back()
		time.Sleep(6 * time.Second)
		expect("back", true)

		f.Refuse(true)
		f.Cut(thingsPath)
		time.Sleep(snapshot.Skew + time.Second)
		expect("nobody listens", false)
		f.Refuse(false)
		time.Sleep(6 * time.Second)
		expect("somebody listens", true)
	})
}

// TestReflectorThatMayOnlyList: lists alone tell of no change.
func TestReflectorThatMayOnlyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Answer(http.StatusForbidden, "watch "+thingsPath)
		r, _ := runThings(t, f, thing("a", "1", 1))
		if r.current() || !r.ready() || !r.isRefused() {
			t.Errorf("current %v, ready %v, refused %v", r.current(), r.ready(), r.isRefused())
		}
		time.Sleep(time.Hour)
		if got := f.Asked("list " + thingsPath); got < 17 || got > 21 {
			t.Errorf("asked %d times in an hour, want less and less often, down to once in five minutes", got)
		}
		f.Answer(0, "watch "+thingsPath)
		time.Sleep(2 * refusedRetry)
		if !r.current() || r.isRefused() {
			t.Error("not current, though it may watch")
		}
	})
}

// TestReflectorBeforeASuspension: what was heard before the machine stood still is as old as the wall
// clock says.
func TestReflectorBeforeASuspension(t *testing.T) {
	r := &reflector[string]{known: map[string]string{}}
	if _, _, current := r.get(""); current {
		t.Error("current before anything was heard")
	}
	r.setOpen(true)
	if _, _, current := r.get(""); !current {
		t.Error("what was heard just now is not current")
	}
	before := r.heard
	r.heard = suspended(before, 3600)
	if d := before.Round(0).Sub(r.heard.Round(0)); d != time.Hour || r.heard.Sub(before) != 0 {
		t.Fatalf("not a suspension: by the wall clock %v, by the other %v", d, r.heard.Sub(before))
	}
	if _, _, current := r.get(""); current {
		t.Error("current since before the suspension")
	}
}

// suspended is a reading of the clock from before the machine stood still for some whole seconds,
// which the wall clock has counted and the monotonic one has not. Nothing in package time makes
// one: it holds the seconds of the wall clock above 30 bits of nanoseconds, beside the monotonic
// reading.
func suspended(at time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= seconds << 30 // #nosec G103 -- the first field
	return at
}

// TestReflectorGoesOn: after a watch that came to its timeout from where it ended, after anything else
// with a list, page by page.
func TestReflectorGoesOn(t *testing.T) {
	type answer struct {
		next  string        // of a list: where its next page begins
		lives time.Duration // of a watch; 0: until its timeout
		err   bool
	}
	for _, tt := range []struct {
		name    string
		answers []answer
		want    []string
	}{
		{"at its timeout", []answer{{}, {}, {}, {}}, []string{"list", "watch 7", "watch 8", "watch 9"}},
		{"cut", []answer{{}, {lives: time.Minute}, {}, {}}, []string{"list", "watch 7", "list", "watch 9"}},
		{"cut at once, again and again", []answer{{}, {lives: 1}, {}, {lives: 1}, {}}, []string{"list", "watch 7", "list", "watch 9", "list"}},
		{"a failed list", []answer{{err: true}, {}, {}}, []string{"list", "list", "watch 8"}},
		{"a failed watch", []answer{{}, {err: true}, {}, {}}, []string{"list", "watch 7", "list", "watch 9"}},
		{"pages", []answer{{next: "p"}, {next: "q"}, {}, {}}, []string{"list", "list p", "list q", "watch 7"}},
		{"pages that fail", []answer{{next: "p"}, {err: true}, {}, {}}, []string{"list", "list p", "list", "watch 9"}},
	} {
		proxytest.Bubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var asked []string
			revision := 6
			next := func(what string) (answer, *metav1.PartialObjectMetadata, error) {
				if len(asked) == len(tt.answers) {
					cancel()
					return answer{}, nil, context.Canceled
				}
				asked = append(asked, strings.TrimSpace(what))
				revision++
				a := tt.answers[len(asked)-1]
				if a.err {
					return a, nil, context.DeadlineExceeded
				}
				return a, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: strconv.Itoa(revision)}}, nil
			}
			source := &cache.ListWatch{
				ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
					a, o, err := next("list " + options.Continue)
					if err != nil {
						return nil, err
					}
					return &metav1.PartialObjectMetadataList{
						ListMeta: metav1.ListMeta{ResourceVersion: o.ResourceVersion, Continue: a.next}, Items: []metav1.PartialObjectMetadata{*o},
					}, nil
				},
				WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
					a, o, err := next("watch " + options.ResourceVersion)
					if err != nil {
						return nil, err
					}
					timeout := time.Duration(*options.TimeoutSeconds) * time.Second
					if a.lives == 0 {
						a.lives = timeout
					}
					w := watch.NewRaceFreeFake()
					for at := time.Minute; at < timeout; at += time.Minute {
						time.AfterFunc(at, func() {
							if !w.IsStopped() {
								w.Action(watch.Bookmark, o)
							}
						})
					}
					time.AfterFunc(a.lives, w.Stop)
					return w, nil
				},
			}
			r := &reflector[string]{
				resource: "things", source: source, read: readThing, changed: func(change[string]) {}, log: proxytest.DiscardLog(),
			}
			r.run(ctx)
			if d := cmp.Diff(tt.want, asked); d != "" {
				t.Errorf("asked (-want +got):\n%s", d)
			}
			time.Sleep(time.Hour) // nothing is left in the bubble
		})
	}
}
