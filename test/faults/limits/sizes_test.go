package limits

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
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

// same holds a list of config maps from memory against what kube-apiserver says for its revision.
func (r *rig) same(fromMemory []byte) {
	r.Helper()
	revision, err := ask.Answer{Body: fromMemory}.Revision()
	r.must(err)
	direct, _, err := r.direct.get(r.Context(), boundedList+"?"+ask.Exactly(revision))
	r.must(err)
	if !bytes.Equal(fromMemory, direct) {
		r.Errorf("%d bytes, directly %d, and not the same", len(fromMemory), len(direct))
	}
}

// boundedList is what TestByteBound keeps in memory.
const boundedList = "/api/v1/configmaps"

// TestByteBound: the history is what goes first, then what does not fit is forwarded; memory stays.
func TestByteBound(t *testing.T) {
	harness.Long(t)
	const bound, size, objects = 32 * mib, 100 << 10, 80
	rounds := 8
	r := newRig(t, "--cache-bytes", fmt.Sprint(bound))
	text := strings.Repeat("x", size)
	r.must(inParallel(objects, func(i int) error {
		return r.direct.Ensure(t.Context(), "/api/v1/namespaces/team-b/configmaps", configMap(fmt.Sprintf("bound-%02d", i), text))
	}))
	first, err := r.via.await(t.Context(), boundedList+"?resourceVersion=0")
	r.must(err)
	began, err := ask.Answer{Body: first}.Revision()
	r.must(err)
	exactly := boundedList + "?" + ask.Exactly(began)
	r.same(first)
	a, err := r.via.reviewed(t.Context(), exactly)
	if err != nil || !a.FromMemory() {
		t.Errorf("the first state: %s, %v", a.Source(), err)
	}
	r.same(a.Body)
	written, most, served := 0, 0.0, 0
	for round := range rounds {
		r.must(inParallel(objects, func(i int) error {
			_, err := r.direct.Do(t.Context(), http.MethodPatch, fmt.Sprintf("/api/v1/namespaces/team-b/configmaps/bound-%02d", i),
				kinds.Fields{"data": kinds.Fields{"round": fmt.Sprint(round)}})
			return err
		}))
		written += objects * size
		body, hit, err := r.via.get(t.Context(), boundedList+"?resourceVersion=0")
		r.must(err)
		if hit {
			served++
			r.same(body)
		}
		most = max(most, r.sample().RSS)
	}
	// History goes for what has come, and the last of it may still be on its way.
	lastRound := fmt.Appendf(nil, `"round":"%d"`, rounds-1)
	r.until("all that was written is in memory", func() bool {
		body, hit, err := r.via.get(t.Context(), boundedList+"?resourceVersion=0")
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
		body, hit, err2 = r.via.get(t.Context(), boundedList+"?resourceVersion=0")
		return err1 == nil && err2 == nil && hit && strings.Contains(r.status(fillers), "detail=memory")
	})
	r.same(body)
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
