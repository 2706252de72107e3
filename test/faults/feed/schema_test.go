package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	fwdUnknown = "listproxy; fwd=bypass; detail=unknown-resource"
	// heard is how long after listproxy has heard of a change of a definition what it said before
	// may still be on its way.
	heard = time.Second
)

// endings is how many collections of a resource listproxy has ended because the definition changed.
func (r *rig) endings(k kind) int {
	n := 0
	for line := range strings.Lines(r.proxy.Log()) {
		if strings.Contains(line, `msg="collection ended" collection="`+k.Plural+".") && strings.Contains(line, "reason=schema") {
			n++
		}
	}
	return n
}

// hears waits until listproxy has heard of a change of a definition, and for a moment more. How
// long the news is on its way is not listproxy's doing: before it comes, listproxy cannot know
// better. before are the endings before the change. ask is called again and again meanwhile; it may
// be nil.
func (r *rig) hears(k kind, before int, ask func() error) {
	r.t.Helper()
	var since time.Time
	r.until("listproxy to hear of it", func() error {
		if ask != nil {
			if err := ask(); err != nil {
				return err
			}
		}
		if since.IsZero() {
			if r.endings(k) == before {
				return errors.New("no collection was ended because of it")
			}
			since = time.Now()
		}
		if spent := time.Since(since); spent < heard {
			return fmt.Errorf("%v have passed", spent)
		}
		return nil
	})
}

var (
	tins  = namespaced("tins.feed.test/v1", "Tin", "tins", widgets.Rest)
	jugs  = namespaced("jugs.feed.test/v1", "Jug", "jugs", widgets.Rest)
	boxes = namespaced("boxes.feed.test/v1", "Box", "boxes", widgets.Rest)
	cans  = namespaced("cans.feed.test/v1", "Can", "cans", widgets.Rest)
	urns  = namespaced("urns.feed.test/v1", "Urn", "urns", widgets.Rest)
)

// newSchema is what an answer holds once the default that setDefault sets is there.
var newSchema = []byte(`"added":"by default"`)

// define adds a custom resource to the shared cluster, and some objects.
func define(t *testing.T, r *rig, k kind, ns string) {
	t.Helper()
	r.define(t, k)
	r.namespace(t, ns)
	for i := range 3 {
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
	}
}

// setDefault adds a default to the schema.
func setDefault(t *testing.T, r *rig, k kind) {
	t.Helper()
	added := fieldsOf{"type": "string", "default": "by default"}
	version := kinds.Version(kinds.Open(fieldsOf{"spec": kinds.Open(fieldsOf{"added": added})}))
	r.write(t, http.MethodPatch, k.DefinitionPath(), fieldsOf{"spec": fieldsOf{"versions": []any{version}}})
}

// learned makes listproxy know some revisions of a resource.
func learned(t *testing.T, r *rig, k kind, ns string) []string {
	t.Helper()
	list := k.Path(ns)
	r.await(hitAny, list, anyVersion())
	known := []string{r.touch(t, k, ns, "object-0", "once"), r.create(t, k, ns, "last")}
	r.await(hitNotOlderThan, list, notOlderThan(known[1]))
	for _, revision := range known {
		r.expect(hitExact, list, exactly(revision))
	}
	return known
}

// tryNew asks once after the schema was changed. What comes from memory must be new bytes, and
// the API server's list as soon as that has come so far: it acknowledges a definition some moments
// before it serves it. In these moments it may give a forwarded request an answer of before, which
// it will never give again; what is forwarded is held against it until it answers twice the same.
func (r *rig) tryNew(list string, q url.Values) (ask.Answer, error) {
	a, err := r.admin.Get(r.t.Context(), list+"?"+q.Encode())
	if err != nil {
		return a, err
	}
	if a.Code != http.StatusOK {
		return a, errors.New(a.String())
	}
	verify := func(ctx context.Context) error {
		err := r.verify(ctx, list, q, a)
		if wrong, ok := errors.AsType[poll.Wrong](err); ok {
			return errors.New(string(wrong)) // the API server may still be the one of before
		}
		return err
	}
	if !a.FromMemory() {
		return a, verify(r.t.Context())
	}
	if !bytes.Contains(a.Body, newSchema) {
		return a, poll.Wrong(fmt.Sprintf("%s?%s: bytes of the old schema: %s", list, q.Encode(), a))
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := poll.Retry(ctx, "comparing", func() error { return verify(ctx) }); err != nil {
		return a, poll.Wrong(err.Error())
	}
	return a, nil
}

// awaitNew asks in all ways until all that can come from memory does again, and fails at the
// first answer from memory in bytes of the old schema.
func (r *rig) awaitNew(k kind, ns string, known []string) (quarantined bool) {
	r.t.Helper()
	try := func(q url.Values) (ask.Answer, error) {
		a, err := r.tryNew(k.Path(ns), q)
		quarantined = quarantined || a.Source() == fwdUpstream
		return a, err
	}
	r.until("answers in the new schema from memory", func() error {
		for _, revision := range known {
			for _, q := range []url.Values{exactly(revision), firstPage(revision), notOlderThan(revision)} {
				if _, err := try(q); err != nil {
					return err
				}
			}
		}
		a, err := try(anyVersion())
		if err != nil {
			return err
		}
		if a.Source() != hitAny {
			return fmt.Errorf("it came from %q", a.Source())
		}
		return nil
	})
	return quarantined
}

// Rule 8: when a definition changes, the API server writes the same objects in other bytes,
// without any event about them.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	k, ns := tins, "schema-change"
	r := newRig(t, shared, rigOptions{})
	define(t, r, k, ns)
	known := learned(t, r, k, ns)

	before, quarantined := r.endings(k), false
	setDefault(t, r, k)
	r.hears(k, before, func() error {
		a, err := r.admin.Get(t.Context(), k.Path(ns)+"?"+anyVersion().Encode())
		quarantined = quarantined || a.Source() == fwdUpstream
		return err
	})
	if !r.backInNewSchema(t, k, ns, known) && !quarantined {
		t.Error("nothing was forwarded because of the schema")
	}

	// The page and the log say of which definition what has changed.
	const written = "generation 1 to 2"
	status, err := r.proxy.Status(t.Context())
	expect.NoError(t, err)
	if !slices.ContainsFunc(status.Changes, func(c admin.Change) bool {
		return strings.Contains(c.Of, k.Plural) && c.What == written
	}) {
		t.Errorf("the status page has %+v", status.Changes)
	}
	if !regexp.MustCompile(`definition=` + k.Plural + `\S* change="` + written + `"`).MatchString(r.proxy.Log()) {
		t.Error("the log does not name the change")
	}
}

// Rule 8: when a change of a definition is not heard of, since its stream is away or what it lists is
// held back, custom resources are answered from memory for no longer than API servers may lag behind
// each other; and the change is found out.
func TestSchemaChangeUnheard(t *testing.T) {
	harness.Long(t)
	for name, tt := range map[string]struct {
		kind   kind
		answer func(w http.ResponseWriter, req *http.Request) bool
	}{
		"refused": {cans, func(w http.ResponseWriter, _ *http.Request) bool { return hop.Refuse(w, http.StatusServiceUnavailable) }},
		"held back": {jugs, func(_ http.ResponseWriter, req *http.Request) bool {
			<-req.Context().Done()
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, ns := tt.kind, "schema-unheard-"+tt.kind.Plural
			r := newRig(t, shared, rigOptions{})
			define(t, r, k, ns)
			known := learned(t, r, k, ns)

			var away atomic.Bool
			away.Store(true)
			r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
				return away.Load() && req.URL.Path == kinds.Definitions && tt.answer(w, req)
			})
			r.hop.CutAll()
			// The API server ends the watches of the resource itself: it may be loading as well.
			setDefault(t, r, k)
			for changed := time.Now(); time.Since(changed) < snapshot.Skew+heard; {
				poll.Pause(t.Context(), pollEvery)
			}
			for range 20 {
				r.neverFromMemory(k.Path(ns), ways(known))
			}
			r.await(fwdUpstream, k.Path(ns), anyVersion())
			away.Store(false)
			r.backInNewSchema(t, k, ns, known)
		})
	}
}

// Rule 8: what changes no answer, like an annotation of a definition, ends no watch and forwards no
// list, however often it is written.
func TestWritesThatChangeNothing(t *testing.T) {
	t.Parallel()
	const watchers, writes = 50, 15
	k, ns := urns, "schema-annotated"
	r := newRig(t, shared, rigOptions{args: []string{"--watches"}})
	define(t, r, k, ns)
	known := learned(t, r, k, ns)
	var told [watchers]<-chan events.Event
	for i := range told {
		told[i] = r.follow(t, k, ns, known[1])
	}
	var heardOf atomic.Int32
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		if req.URL.Path == kinds.Definitions && bytes.Contains(line, []byte("listproxy.test/annotated")) && bytes.Contains(line, []byte(k.Plural+".")) {
			heardOf.Add(1)
		}
		return line, nil
	})
	for i := range writes {
		patch := fieldsOf{"metadata": fieldsOf{"annotations": fieldsOf{"listproxy.test/annotated": fmt.Sprint(i)}, "labels": fieldsOf{"touched": fmt.Sprint(i)}}}
		r.write(t, http.MethodPatch, k.DefinitionPath(), patch)
		r.until("listproxy to be told of it", func() error {
			if n := int(heardOf.Load()); n <= i {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		// All that is told afterwards comes from memory, also what is written later.
		revision := r.touch(t, k, ns, "object-0", fmt.Sprint(i))
		for n, of := range told {
			if e, goes := <-of; !goes || e.Type != "MODIFIED" || e.Meta.ResourceVersion != revision {
				t.Fatalf("write %d: watch %d is told %+v (it goes on: %v), not revision %s", i, n, e, goes, revision)
			}
		}
		r.expect(hitNotOlderThan, k.Path(ns), notOlderThan(revision))
		r.expect(hitExact, k.Path(ns), exactly(known[0]))
	}
	if n := r.endings(k); n > 0 {
		t.Errorf("%d collections ended", n)
	}
}

// ways are all in which a list can be asked for at revisions that are known.
func ways(known []string) []url.Values {
	return []url.Values{anyVersion(), notOlderThan(known[0]), exactly(known[0]), firstPage(known[1])}
}

// neverFromMemory asks in these ways after the schema was changed: nothing may come from memory.
func (r *rig) neverFromMemory(list string, ways []url.Values) {
	r.t.Helper()
	for _, q := range ways {
		r.until("an answer", func() error {
			a, err := r.tryNew(list, q)
			if err == nil && a.FromMemory() {
				err = poll.Wrong(fmt.Sprintf("%s came from %q", q.Encode(), a.Source()))
			}
			return err
		})
	}
}

// backInNewSchema waits until what was known comes from memory in the new schema, and so does what
// is written then.
func (r *rig) backInNewSchema(t *testing.T, k kind, ns string, known []string) (quarantined bool) {
	t.Helper()
	quarantined = r.awaitNew(k, ns, known)
	later := r.create(t, k, ns, "later")
	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(later))
	r.expect(hitExact, k.Path(ns), exactly(later))
	return quarantined
}

// A definition that comes is found, what goes is not answered any more, and when it comes again it
// is another resource.
func TestDefinitionsComeAndGo(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k, ns := boxes, "schema-comes-and-goes"
	r := newRig(t, shared, rigOptions{})
	r.await(fwdUnknown, k.Path(""), anyVersion()) // discovery may take its time
	define(t, r, k, ns)
	known := learned(t, r, k, ns)

	before := r.endings(k)
	r.write(t, http.MethodDelete, k.DefinitionPath(), nil)
	r.until("the API server to forget it", func() error {
		a, err := r.direct.Get(t.Context(), k.Path(""))
		if err == nil && a.Code != http.StatusNotFound {
			err = errors.New(a.String())
		}
		return err
	})
	// That objects go is told before the definition has gone: it is loaded again, should that take
	// long.
	r.hears(k, before, func() error {
		a, err := r.admin.Get(t.Context(), k.Path(ns)+"?"+anyVersion().Encode())
		if err == nil && a.FromMemory() {
			err = errors.New(a.String())
		}
		return err
	})
	for _, q := range []url.Values{anyVersion(), exactly(known[0]), firstPage(known[1])} {
		if a := r.ask(k.Path(ns), q); a.Code != http.StatusNotFound || strings.Contains(a.Source(), "hit") {
			t.Errorf("%s of a resource that is gone: %s", q.Encode(), a)
		}
	}

	r.define(t, k)
	revision := r.create(t, k, ns, "new")
	a := r.await(hitNotOlderThan, k.Path(ns), notOlderThan(revision))
	if bytes.Contains(a.Body, []byte(`"object-0"`)) || !bytes.Contains(a.Body, []byte(`"new"`)) {
		t.Errorf("the resource that came again: %s", a)
	}
}

// follow watches what comes after a revision, which must come from memory. The channel is closed
// when the watch ends.
func (r *rig) follow(t *testing.T, k kind, namespace, revision string) <-chan events.Event {
	t.Helper()
	var resp *http.Response
	r.until("a watch from memory", func() (err error) {
		resp, err = r.admin.Open(t.Context(), http.MethodGet, k.Path(namespace)+"?watch=true&timeoutSeconds=600&resourceVersion="+revision, nil)
		if err == nil && !ask.FromMemory(resp.Header) {
			resp.Body.Close()
			err = errors.New(resp.Header.Get("Cache-Status"))
		}
		return err
	})
	told := make(chan events.Event)
	go func() {
		defer close(told)
		defer resp.Body.Close()
		for in := events.NewReader(resp.Body, ask.JSON); ; {
			e, err := in.Next()
			if err != nil {
				return
			}
			select {
			case told <- e:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return told
}
