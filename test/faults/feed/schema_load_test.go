package feed

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// jars have two versions, a field to select by in both, and what a test does to them.
type jars struct {
	added      bool // a default in the schema
	selectable bool
	second     bool // v2 is served
}

func (j jars) versions() []any {
	properties := fieldsOf{"color": fieldsOf{"type": "string"}}
	if j.added {
		properties["added"] = fieldsOf{"type": "string", "default": "by default"}
	}
	version := func(name string, served, storage bool) fieldsOf {
		v := kinds.Version(kinds.Open(fieldsOf{"spec": kinds.Open(properties)}))
		v["name"], v["served"], v["storage"] = name, served, storage
		if j.selectable {
			v["selectableFields"] = []any{fieldsOf{"jsonPath": ".spec.color"}}
		}
		return v
	}
	return []any{version("v1", true, true), version("v2", j.second, false)}
}

// truth is what answers from memory must be like, and since when, in Unix nanoseconds; 0: not yet.
type truth struct{ added, unselectable, gone atomic.Int64 }

func begun(at *atomic.Int64, asked time.Time) bool {
	from := at.Load()
	return from != 0 && asked.UnixNano() >= from
}

// judge finds fault with an answer from memory to a question that was asked at a time.
func (tr *truth) judge(path string, asked time.Time, body []byte) error {
	whole := bytes.HasPrefix(body, []byte(`{"apiVersion":"jars.feed.test/`))
	switch {
	case begun(&tr.added, asked) && whole && bytes.Count(body, newSchema) != bytes.Count(body, []byte(`"kind":"Jar",`)):
		return poll.Wrong(fmt.Sprintf("%s: bytes of the old schema: %s", path, body))
	case begun(&tr.unselectable, asked) && strings.Contains(path, "spec.color"):
		return poll.Wrong(path + " is selected by a field that is not selectable any more")
	case begun(&tr.gone, asked) && strings.HasPrefix(path, "/apis/jars.feed.test/v2/"):
		return poll.Wrong(path + " is of a version that is not served any more")
	}
	return nil
}

// Rule 8, under load: while objects are written and listed all the time, in both versions and all
// representations, a definition gets new defaults, loses a selectable field, and loses a version.
// No answer from memory is of before.
func TestSchemaChangesUnderLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	first := namespaced("jars.feed.test/v1", "Jar", "jars", `{"spec":{"color":"red"}}`)
	second := first
	second.APIVersion = "jars.feed.test/v2"
	is := jars{selectable: true, second: true}
	shared.define(t, first, is.versions()...)
	expect.NoError(t, shared.served(t.Context(), second))
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "schema-load")
	for i := range 5 {
		r.create(t, first, ns, fmt.Sprintf("object-%d", i))
	}

	var tr truth
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var hits [2]atomic.Int64
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			// Between two definitions the API server answers nothing for a moment.
			_, _ = r.direct.Do(ctx, http.MethodPatch, first.Path(ns)+fmt.Sprintf("/object-%d", i%5), kinds.Touch(fmt.Sprint(i)))
			poll.Pause(ctx, pollEvery/3)
		}
	})
	for v, k := range []kind{first, second} {
		for _, accept := range []string{"application/json", "application/json" + metadataOf, protobufType + metadataOf} {
			load.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					q := anyVersion()
					if i%2 == 1 {
						q.Set("fieldSelector", []string{"spec.color=red", "metadata.name!=object-1"}[i/2%2])
					}
					path, asked := k.Path(ns)+"?"+q.Encode(), time.Now()
					a, err := r.admin.GetAs(ctx, accept, path)
					if err != nil || !strings.Contains(a.Source(), "hit") {
						continue
					}
					hits[v].Add(1)
					if err := tr.judge(unescaped(path), asked, a.Body); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	defer load.Wait()
	defer stop()
	more := func(v int) {
		had := hits[v].Load()
		r.until("answers from memory", func() error {
			if hits[v].Load() < had+20 {
				return fmt.Errorf("%d", hits[v].Load())
			}
			return nil
		})
	}
	change := func(at *atomic.Int64) {
		before := r.endings(first)
		r.write(t, http.MethodPatch, first.DefinitionPath(), fieldsOf{"spec": fieldsOf{"versions": is.versions()}})
		r.hears(first, before, nil)
		at.Store(time.Now().UnixNano())
	}
	more(0)
	more(1)

	is.added = true
	change(&tr.added)
	more(0)
	more(1)

	is.selectable = false
	change(&tr.unselectable)
	more(0)
	more(1)

	is.second = false
	change(&tr.gone)
	more(0)
	gone := hits[1].Load()
	more(0)
	if hits[1].Load() != gone {
		t.Error("the version that is gone is still answered from memory")
	}
}

// unescaped is a path whose query can be read.
func unescaped(path string) string {
	text, err := url.QueryUnescape(path)
	if err != nil {
		return path
	}
	return text
}
