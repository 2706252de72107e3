package limits

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// configMap with a text.
func configMap(name, text string) kinds.Fields {
	object := kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object(name)
	object["data"] = kinds.Fields{"text": text}
	return object
}

// inParallel does what kube-apiserver does as well beside each other.
func inParallel(n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// custom is a kind of objects that hold anything.
func custom(name string) kinds.Kind {
	return kinds.Kind{APIVersion: "limits.test/v1", Name: name, Plural: strings.ToLower(name) + "s"}
}

// define creates definitions and waits until their resources are served.
func (r *rig) define(all ...kinds.Kind) {
	r.Helper()
	r.must(inParallel(len(all), func(i int) error { return r.direct.Ensure(r.Context(), kinds.Definitions, all[i].Definition()) }))
	for _, k := range all {
		r.until(k.Plural+" are served", func() bool {
			_, _, err := r.direct.get(r.Context(), k.Path("")+"?limit=1")
			return err == nil
		})
	}
}

// same holds a list from memory against what kube-apiserver says for its revision.
func (r *rig) same(path string, fromMemory []byte) {
	r.Helper()
	revision, err := ask.Answer{Body: fromMemory}.Revision()
	r.must(err)
	direct, _, err := r.direct.get(r.Context(), path+"?"+ask.Exactly(revision))
	r.must(err)
	if !bytes.Equal(fromMemory, direct) {
		r.Errorf("%s: %d bytes, directly %d, and not the same", path, len(fromMemory), len(direct))
	}
}

// TestLargeObjects: of 1.5 MB each, the most that etcd takes.
func TestLargeObjects(t *testing.T) {
	harness.Long(t)
	const size = 1_500_000
	n := scale(40, 8)
	r := newRig(t)
	giants := custom("Giant")
	r.define(giants)
	path := giants.Path("")
	r.must(inParallel(n, func(i int) error {
		giant := giants.Object(fmt.Sprintf("giant-%02d", i))
		giant["text"] = strings.Repeat(fmt.Sprintf("%07d,", i), size/8)
		return r.direct.Ensure(t.Context(), giants.Path("team-a"), giant)
	}))
	before := r.sample()
	begun := time.Now()
	body, err := r.via.await(t.Context(), path+"?resourceVersion=0")
	r.must(err)
	loaded := time.Since(begun)
	r.same(path, body)
	var took time.Duration
	var a ask.Answer
	poll.Reviewed(t.Context(), patience, func() string {
		begun = time.Now()
		a, err = r.via.Do(t.Context(), http.MethodGet, path+"?resourceVersion=0", nil)
		took = time.Since(begun)
		return a.Source()
	})
	r.must(err)
	body = a.Body
	if !a.FromMemory() || len(body) < n*size {
		t.Errorf("%d bytes, %s", len(body), a.Source())
	}
	r.same(path, body)
	r.say("%d objects of 1.5 MB: from memory after %.1f s; a list of all (%.0f MiB) takes %.2f s; %.0f MiB resident, %.0f before",
		n, loaded.Seconds(), float64(len(body))/mib, took.Seconds(), r.sample().RSS/mib, before.RSS/mib)
}

// TestNamespaces: a list of one namespace each costs what it holds, however many there are.
func TestNamespaces(t *testing.T) {
	harness.Long(t)
	n := scale(5000, 200)
	r := newRig(t)
	path := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/limits-%04d/configmaps", i) }
	r.must(inParallel(n, func(i int) error {
		if err := r.direct.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(fmt.Sprintf("limits-%04d", i))); err != nil {
			return err
		}
		return r.direct.Ensure(t.Context(), path(i), configMap("one", fmt.Sprint(i)))
	}))
	_, err := r.via.await(t.Context(), "/api/v1/configmaps?resourceVersion=0")
	r.must(err)
	before := r.sample()
	begun := time.Now()
	fromMemory := 0
	for i := range n {
		body, hit, err := r.via.get(t.Context(), path(i)+"?resourceVersion=0")
		r.must(err)
		if hit {
			fromMemory++
		}
		if hit && i%(n/20) == 0 {
			r.same(path(i), body)
		}
	}
	took := time.Since(begun)
	if fromMemory < n*9/10 {
		t.Errorf("%d of %d lists came from memory", fromMemory, n)
	}
	r.say("%d namespaces: %d of %d lists of one each came from memory, %.2f ms each with its review; %.1f MiB resident, %.1f before",
		n, fromMemory, n, took.Seconds()*1000/float64(n), r.sample().RSS/mib, before.RSS/mib)
}

// TestCollections: so many resources at the same time.
func TestCollections(t *testing.T) {
	harness.Long(t)
	n := scale(500, 20)
	r := newRig(t)
	all := make([]kinds.Kind, n)
	for i := range all {
		all[i] = custom(fmt.Sprintf("K%03d", i))
	}
	r.define(all...)
	path := func(i int) string { return all[i].Path("") }
	before := r.sample()
	begun := time.Now()
	bodies := make([][]byte, n)
	r.must(inParallel(n, func(i int) (err error) {
		bodies[i], err = r.via.await(t.Context(), path(i)+"?resourceVersion=0")
		return err
	}))
	took := time.Since(begun)
	after := r.sample()
	compared := 0
	for i := 0; i < n; i += n / 20 {
		r.same(path(i), bodies[i])
		compared++
	}
	r.say("%d collections, empty: all from memory after %.0f s, %d compared; each %.1f KiB resident, %.1f goroutines; %d connections to the API server",
		n, took.Seconds(), compared, (after.RSS-before.RSS)/1024/float64(n), (after.Goroutines-before.Goroutines)/float64(n), r.hop.Connections())
}

// TestByteBound: the history is what goes first, then what does not fit is forwarded; memory stays.
func TestByteBound(t *testing.T) {
	harness.Long(t)
	const bound, size, objects = 32 * mib, 100 << 10, 80
	rounds := scale(40, 8)
	r := newRig(t, "--cache-bytes", fmt.Sprint(bound))
	text := strings.Repeat("x", size)
	r.must(inParallel(objects, func(i int) error {
		return r.direct.Ensure(t.Context(), "/api/v1/namespaces/team-b/configmaps", configMap(fmt.Sprintf("bound-%02d", i), text))
	}))
	const list = "/api/v1/configmaps"
	first, err := r.via.await(t.Context(), list+"?resourceVersion=0")
	r.must(err)
	began, err := ask.Answer{Body: first}.Revision()
	r.must(err)
	exactly := list + "?" + ask.Exactly(began)
	r.same(list, first)
	a, err := r.via.reviewed(t.Context(), exactly)
	if err != nil || !a.FromMemory() {
		t.Errorf("the first state: %s, %v", a.Source(), err)
	}
	r.same(list, a.Body)
	written, most, served := 0, 0.0, 0
	for round := range rounds {
		r.must(inParallel(objects, func(i int) error {
			_, err := r.direct.Do(t.Context(), http.MethodPatch, fmt.Sprintf("/api/v1/namespaces/team-b/configmaps/bound-%02d", i),
				kinds.Fields{"data": kinds.Fields{"round": fmt.Sprint(round)}})
			return err
		}))
		written += objects * size
		body, hit, err := r.via.get(t.Context(), list+"?resourceVersion=0")
		r.must(err)
		if hit {
			served++
			r.same(list, body)
		}
		most = max(most, r.sample().RSS)
	}
	// History goes for what has come, and the last of it may still be on its way.
	lastRound := fmt.Appendf(nil, `"round":"%d"`, rounds-1)
	r.until("all that was written is in memory", func() bool {
		body, hit, err := r.via.get(t.Context(), list+"?resourceVersion=0")
		return err == nil && hit && bytes.Count(body, lastRound) == objects
	})
	_, hit, err := r.via.get(t.Context(), exactly)
	r.must(err)
	if hit {
		t.Error("the first state is still in memory")
	}
	// What does not fit beside it, in use, is forwarded.
	filler := custom("Filler")
	r.define(filler)
	fillers := filler.Path("") + "?resourceVersion=0"
	r.must(inParallel(3*objects, func(i int) error {
		object := filler.Object(fmt.Sprintf("bound-%03d", i))
		object["text"] = text
		return r.direct.Ensure(t.Context(), filler.Path("team-b"), object)
	}))
	var body []byte
	r.until("what does not fit is forwarded", func() bool {
		_, _, err1 := r.via.get(t.Context(), fillers)
		var err2 error
		body, hit, err2 = r.via.get(t.Context(), list+"?resourceVersion=0")
		return err1 == nil && err2 == nil && hit && strings.Contains(r.status(fillers), "detail=memory")
	})
	r.same(list, body)
	r.say("--cache-bytes 32Mi, 8 MiB of objects, %d MiB of changes: %d of %d lists meanwhile from memory, "+
		"at most %.0f MiB resident; 24 MiB of another resource: forwarded (memory), the first still from memory, %.0f MiB resident",
		written/mib, served, rounds, most/mib, r.sample().RSS/mib)
	if served == 0 {
		t.Error("nothing came from memory while the history was shortened")
	}
}

// status is the Cache-Status of an answer.
func (r *rig) status(target string) string {
	r.Helper()
	a, err := r.via.Get(r.Context(), target)
	r.must(err)
	return a.Source()
}
