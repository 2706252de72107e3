package feed

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

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

// An API server that answers nothing new that listproxy asks with its own account ends no watch, for
// as long as its own watches go on: what is watched then is never told less than there, while lists
// of the newest state are forwarded.
func TestWatchesOutliveOverload(t *testing.T) {
	harness.Long(t)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"refusing": func(w http.ResponseWriter, _ *http.Request) bool { return hop.Refuse(w, http.StatusTooManyRequests) },
		"silent":   func(_ http.ResponseWriter, req *http.Request) bool { return poll.Pause(req.Context(), patience) },
	} {
		for _, k := range []kind{widgets, configMaps} {
			t.Run(name+" "+k.Plural, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, shared, rigOptions{bound: shortestBound, args: []string{"--watches"}})
				ns := r.namespace(t, "overload-"+name+"-"+k.Plural)
				list := k.Path(ns)
				r.create(t, k, ns, "watched")
				r.await(hitAny, list, anyVersion())
				revision := r.touch(t, k, ns, "watched", "first")
				r.await(hitNotOlderThan, list, notOlderThan(revision))
				told := r.follow(t, k, ns, revision)
				r.onFault(answer)
				for stale, until := 0, time.Now().Add(4*shortestBound); stale == 0 || time.Now().Before(until); {
					if a, err := r.try(list, anyVersion()); err == nil && a.Source() == fwdStale {
						stale++
					}
					revision = r.touch(t, k, ns, "watched", time.Now().String())
					if e, goes := <-told; !goes || e.Type != "MODIFIED" || e.Meta.ResourceVersion != revision {
						t.Fatalf("told %+v (the watch goes on: %v) and not revision %s", e, goes, revision)
					}
					poll.Pause(t.Context(), pollEvery)
				}
				r.onFault(nil)
				r.await(hitNotOlderThan, list, notOlderThan(revision))
			})
		}
	}
}
