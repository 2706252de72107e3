package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server in memory, as far as reflectors and discovery need
// one. It is a RoundTripper, so that it works in a synctest bubble.
type fakeAPI struct {
	mu          sync.Mutex
	collections map[string]*fakeCollection // by path
	documents   map[string]string          // by path; what discovery reads
	status      map[string]int             // by "verb path": what is answered instead
	requests    map[string]int             // by "verb path"
	takes       time.Duration              // how long a document takes
	refused     bool                       // nobody listens
	plain       bool                       // there are no streaming lists
}

// fakeCollection is what can be listed and watched at a path.
type fakeCollection struct {
	kind    string // of the list
	objects []string
	watches []*io.PipeWriter
	silent  bool          // watches have no bookmarks by themselves
	stalls  chan struct{} // closed when what is listed is sent; nil: at once
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		collections: make(map[string]*fakeCollection),
		documents:   make(map[string]string),
		status:      make(map[string]int),
		requests:    make(map[string]int),
	}
}

// config points client-go to the API server in memory.
func (f *fakeAPI) config() *rest.Config {
	return &rest.Config{Host: "https://upstream.example", Transport: f}
}

func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	f.mu.Lock()
	defer f.mu.Unlock()
	collection := f.collections[r.URL.Path]
	verb := "get"
	switch {
	case query.Get("watch") != "":
		verb = "watch"
	case collection != nil:
		verb = "list"
	}
	f.requests[verb+" "+r.URL.Path]++
	if f.refused {
		return nil, syscall.ECONNREFUSED
	}
	if status := f.status[verb+" "+r.URL.Path]; status != 0 {
		return cannedReply(r, status, statusBody(status)), nil
	}
	switch document, ok := f.documents[r.URL.Path]; {
	case verb == "watch" && f.plain && query.Get("sendInitialEvents") == "true":
		return cannedReply(r, http.StatusUnprocessableEntity, statusBody(http.StatusUnprocessableEntity)), nil
	case verb == "watch" && collection != nil:
		return collection.watch(r, query.Get("sendInitialEvents") == "true", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return collection.silent
		}), nil
	case verb == "list":
		if stalls := collection.stalls; stalls != nil {
			f.mu.Unlock()
			defer f.mu.Lock()
			select {
			case <-stalls:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		apiVersion := "meta.k8s.io/v1"
		return cannedReply(r, http.StatusOK, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`,
			collection.kind, apiVersion, strings.Join(collection.objects, ","))), nil
	case ok:
		f.mu.Unlock() // others go on while this one waits
		defer f.mu.Lock()
		select {
		case <-time.After(f.takes):
			return cannedReply(r, http.StatusOK, document), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return cannedReply(r, http.StatusNotFound, statusBody(http.StatusNotFound)), nil
}

// watch answers with a stream that lasts until the request or cut ends it, with a bookmark every minute.
func (c *fakeCollection) watch(r *http.Request, initial bool, silent func() bool) *http.Response {
	body, events := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = events.CloseWithError(r.Context().Err()) })
	c.watches = append(c.watches, events)
	resp := cannedReply(r, http.StatusOK, "")
	resp.Body = body
	bookmark := func(annotations string) error {
		_, err := io.WriteString(events, watchEvent("BOOKMARK", fmt.Sprintf(`{"kind":%q,"apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"%s}}`,
			strings.TrimSuffix(c.kind, "List"), annotations)))
		return err
	}
	stalls := c.stalls
	go func() {
		if initial {
			if stalls != nil {
				select {
				case <-stalls:
				case <-r.Context().Done():
					return
				}
			}
			for _, object := range c.objects {
				_, _ = io.WriteString(events, watchEvent("ADDED", object))
			}
			_ = bookmark(fmt.Sprintf(`,"annotations":{%q:"true"}`, metav1.InitialEventsAnnotationKey))
		}
		for {
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
				return
			}
			if !silent() && bookmark("") != nil {
				return
			}
		}
	}()
	return resp
}

func watchEvent(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

// statusBody is an error as API servers write it.
func statusBody(code int) string {
	reason := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound:  metav1.StatusReasonNotFound,

		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	}[code]
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code),
	})
	if err != nil {
		return ""
	}
	return string(body)
}

// event sends an event to those who watch path, and waits until it has been
// taken.
func (f *fakeAPI) event(path, kind, object string) {
	f.mu.Lock()
	watches := f.collections[path].watches
	f.mu.Unlock()
	for _, events := range watches {
		_, _ = io.WriteString(events, watchEvent(kind, object))
	}
	synctest.Wait()
}

// cut ends the watches of path.
func (f *fakeAPI) cut(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.collections[path].watches {
		_ = events.CloseWithError(io.ErrUnexpectedEOF)
	}
	f.collections[path].watches = nil
}

// end ends the watches of path in order, as at their timeout.
func (f *fakeAPI) end(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.collections[path].watches {
		_ = events.Close()
	}
	f.collections[path].watches = nil
}

// silence makes watches of path have no bookmarks by themselves.
func (f *fakeAPI) silence(path string, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.collections[path].silent = silent
}

// stall holds back what lists of path say, streaming ones after their header, until flow.
func (f *fakeAPI) stall(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.collections[path].stalls = make(chan struct{})
}

// flow ends stall.
func (f *fakeAPI) flow(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.collections[path].stalls)
	f.collections[path].stalls = nil
}

// answer sets what "verb path" is answered with; zero means as usual.
func (f *fakeAPI) answer(status int, verbPaths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, verbPath := range verbPaths {
		f.status[verbPath] = status
	}
}

// refuse makes all connections be refused, as where nothing runs.
func (f *fakeAPI) refuse(refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = refused
}

// document sets what discovery reads at path.
func (f *fakeAPI) document(path, document string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.documents[path] = document
}

// asked returns how often "verb path" was.
func (f *fakeAPI) asked(verbPath string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[verbPath]
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// rbacObject is the metadata of an RBAC object.
func rbacObject(name string, revision int) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"resourceVersion":"%d"}}`, name, revision)
}

// newFakeRBAC is an API server with so many objects of each RBAC resource.
func newFakeRBAC(objects int) *fakeAPI {
	f := newFakeAPI()
	for _, resource := range rbacResources {
		c := &fakeCollection{kind: "PartialObjectMetadataList"}
		for n := range objects {
			c.objects = append(c.objects, rbacObject(fmt.Sprint(n), 1))
		}
		f.collections[rbacPath+resource] = c
	}
	return f
}

// watchRBAC runs WatchRBAC in the bubble and counts its flushes.
func watchRBAC(t *testing.T, f *fakeAPI, log *slog.Logger) *atomic.Int32 {
	t.Helper()
	var flushes atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := WatchRBAC(ctx, f.config(), func() { flushes.Add(1) }, log); err != nil {
			t.Errorf("WatchRBAC: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	synctest.Wait()
	return &flushes
}

// An initial state is one change, however many objects it has, and whichever
// way the upstream sends it.
func TestRBACStartFlushesOnceForEachResource(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int // of streaming lists and watches
		want   int32
	}{
		{"streaming lists", 0, 4},
		{"plain lists", http.StatusBadRequest, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRBAC(200)
				for _, resource := range rbacResources {
					f.answer(test.status, "watch "+rbacPath+resource)
				}
				flushes := watchRBAC(t, f, discardLog())
				if got := flushes.Load(); got != test.want {
					t.Errorf("%d flushes, want %d", got, test.want)
				}
			})
		})
	}
}

func TestRBACChangesFlush(t *testing.T) {
	for _, resource := range rbacResources {
		for _, kind := range []string{"ADDED", "MODIFIED", "DELETED"} {
			t.Run(resource+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeRBAC(1)
					flushes := watchRBAC(t, f, discardLog())
					time.Sleep(time.Minute)
					flushes.Store(0)

					var got []int32
					f.event(rbacPath+resource, kind, rbacObject("0", 2))
					got = append(got, flushes.Load()) // at once
					time.Sleep(authorizerLag - time.Nanosecond)
					got = append(got, flushes.Load())
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					got = append(got, flushes.Load()) // once more
					time.Sleep(time.Hour)
					got = append(got, flushes.Load()) // and that is all
					if diff := cmp.Diff([]int32{1, 1, 2, 2}, got); diff != "" {
						t.Errorf("flushes (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

func TestRBACLateFlushesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC(1)
		flushes := watchRBAC(t, f, discardLog())
		time.Sleep(time.Minute)
		flushes.Store(0)
		for n := range 100 {
			f.event(rbacPath+rbacResources[n%len(rbacResources)], "MODIFIED", rbacObject("0", n+2))
			time.Sleep(time.Millisecond)
		}
		if got := flushes.Load(); got != 100 {
			t.Errorf("%d flushes for 100 changes", got)
		}
		time.Sleep(time.Hour)
		if got := flushes.Load(); got != 101 {
			t.Errorf("%d flushes in the end, want one more", got)
		}
	})
}

func TestRBACBookmarksDoNotFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC(1)
		flushes := watchRBAC(t, f, discardLog())
		time.Sleep(time.Minute)
		flushes.Store(0)
		f.event(rbacPath+"roles", "BOOKMARK", rbacObject("", 7))
		time.Sleep(time.Minute)
		if got := flushes.Load(); got != 0 {
			t.Errorf("%d flushes", got)
		}
	})
}

// What happened while the stream was down is not known: its new state counts
// as a change.
func TestRBACFlushesAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC(1)
		flushes := watchRBAC(t, f, discardLog())
		time.Sleep(time.Minute)
		flushes.Store(0)

		f.answer(http.StatusServiceUnavailable, "watch "+rbacPath+"roles", "list "+rbacPath+"roles")
		f.cut(rbacPath + "roles")
		time.Sleep(10 * time.Minute)
		if got := flushes.Load(); got != 0 {
			t.Errorf("%d flushes while there was nothing to hear", got)
		}
		f.answer(0, "watch "+rbacPath+"roles", "list "+rbacPath+"roles")
		time.Sleep(time.Minute)
		if got := flushes.Load(); got == 0 {
			t.Error("no flush after the gap")
		}
		flushes.Store(0)
		f.event(rbacPath+"roles", "MODIFIED", rbacObject("0", 2))
		if got := flushes.Load(); got != 1 {
			t.Errorf("%d flushes for a change after the gap", got)
		}
	})
}

func TestRBACNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC(1)
		for _, resource := range rbacResources {
			f.answer(http.StatusForbidden, "watch "+rbacPath+resource, "list "+rbacPath+resource)
		}
		var logged logBuffer
		flushes := watchRBAC(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
		time.Sleep(time.Hour)
		if got := strings.Count(logged.String(), "\n"); got != 1 || !strings.Contains(logged.String(), "level=INFO") {
			t.Errorf("want one line of information, got:\n%s", logged.String())
		}
		// Eight or nine times in the first five minutes, at doubling distances, then once in five.
		if got := f.asked("list " + rbacPath + "roles"); got < 17 || got > 21 {
			t.Errorf("asked %d times in an hour, want less and less often, down to once in five minutes", got)
		}
		if got := flushes.Load(); got != 0 {
			t.Errorf("%d flushes", got)
		}

		for _, resource := range rbacResources {
			f.answer(0, "watch "+rbacPath+resource, "list "+rbacPath+resource)
		}
		time.Sleep(2 * refusedRetry)
		flushes.Store(0)
		f.event(rbacPath+"roles", "MODIFIED", rbacObject("0", 2))
		if got := flushes.Load(); got != 1 {
			t.Errorf("%d flushes for a change after it was granted", got)
		}
	})
}

func TestRBACOfABadConfiguration(t *testing.T) {
	cfg := &rest.Config{Host: "https://upstream.example", TLSClientConfig: rest.TLSClientConfig{CAFile: t.TempDir() + "/none"}}
	if err := WatchRBAC(t.Context(), cfg, func() {}, discardLog()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an error about the configuration", err)
	}
}
