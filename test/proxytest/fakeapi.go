package proxytest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/inmemory"
)

// FakeAPI is an API server in memory that says what a test wants, to reflectors, discovery and feeds. (One that says
// what is true is [inmemory.ControlPlane].) It is a RoundTripper, so that it works in a synctest bubble.
type FakeAPI struct {
	Collections map[string]*FakeCollection // by path
	Requests    map[string]int             // by "verb path"

	mu        sync.Mutex
	documents map[string]string        // by path; what discovery reads
	status    map[string]int           // by "verb path": what is answered instead
	stalls    map[string]chan struct{} // by path: what is read there is answered when it is closed
}

// FakeCollection is what can be listed and watched at a path.
type FakeCollection struct {
	Kind       string // of the list
	APIVersion string // meta.k8s.io/v1 if it is empty
	Objects    []string
	// Now, if it is not nil, returns what there is in place of Objects, and at which revision.
	Now     func() (revision int, objects []string)
	Custom  bool     // lists are written as those of custom resources
	Watched []string // the revisions from which watches went on
	watches []*io.PipeWriter
	silent  bool // watches have no bookmarks by themselves
}

// NewFakeAPI returns an API server that serves nothing yet.
func NewFakeAPI() *FakeAPI {
	return &FakeAPI{
		Collections: make(map[string]*FakeCollection),
		documents:   make(map[string]string),
		status:      make(map[string]int),
		stalls:      make(map[string]chan struct{}),
		Requests:    make(map[string]int),
	}
}

// Config points client-go to the API server in memory.
func (f *FakeAPI) Config() *rest.Config {
	return &rest.Config{Host: "https://upstream.example", Transport: f}
}

// RoundTrip answers a request.
func (f *FakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	collection := f.collection(r.URL.Path)
	verb := "get"
	switch {
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	case collection != nil:
		verb = "list"
	}
	f.Requests[verb+" "+r.URL.Path]++
	if status := f.status[verb+" "+r.URL.Path]; status != 0 {
		return Refusal(r, status), nil
	}
	if stalls := f.stalls[r.URL.Path]; stalls != nil && verb != "watch" {
		f.mu.Unlock() // others go on while this one waits
		select {
		case <-stalls:
		case <-r.Context().Done():
		}
		f.mu.Lock()
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
	}
	switch document, ok := f.documents[r.URL.Path]; {
	case verb == "watch" && collection != nil:
		collection.Watched = append(collection.Watched, r.URL.Query().Get("resourceVersion"))
		return f.watch(r, collection), nil
	case verb == "list":
		return collection.list(r), nil
	case ok:
		return JSONResponse(r, http.StatusOK, document), nil
	}
	return Refusal(r, http.StatusNotFound), nil
}

// collection returns what can be listed at a path, in all namespaces or in one, or nil.
func (f *FakeAPI) collection(path string) *FakeCollection {
	if c := f.Collections[path]; c != nil {
		return c
	}
	group, within, _ := strings.Cut(path, "/namespaces/")
	_, resource, _ := strings.Cut(within, "/")
	return f.Collections[group+"/"+resource]
}

// now returns what there is of what a request selects by name, and at which revision.
func (c *FakeCollection) now(r *http.Request) (revision int, objects []string) {
	revision, objects = 1, c.Objects
	if c.Now != nil {
		revision, objects = c.Now()
	}
	if _, name, selects := strings.Cut(r.URL.Query().Get("fieldSelector"), "metadata.name="); selects {
		name, _, _ = strings.Cut(name, ",")
		objects = slices.DeleteFunc(slices.Clone(objects), func(o string) bool { return !strings.Contains(o, fmt.Sprintf(`"name":%q`, name)) })
	}
	return revision, objects
}

// list answers with a page. Its token is where the next one begins.
func (c *FakeCollection) list(r *http.Request) *http.Response {
	revision, items := c.now(r)
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	next := ""
	if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && from+limit < len(items) {
		items, next = items[:from+limit], fmt.Sprintf(`"continue":"%d",`, from+limit)
	}
	written := strings.Join(items[from:], ",")
	if c.Custom {
		next = cmp.Or(next, `"continue":"",`)
		return JSONResponse(r, http.StatusOK, fmt.Sprintf(`{"apiVersion":%q,"items":[%s],"kind":%q,"metadata":{%s"resourceVersion":"%d"}}`+"\n",
			c.apiVersion(), written, c.Kind, next, revision))
	}
	return JSONResponse(r, http.StatusOK, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{%s"resourceVersion":"%d"},"items":[%s]}`,
		c.Kind, c.apiVersion(), next, revision, written))
}

func (c *FakeCollection) apiVersion() string { return cmp.Or(c.APIVersion, "meta.k8s.io/v1") }

// bookmark is the line of a watch that says how far it is.
func (c *FakeCollection) bookmark(revision int, endsInitial bool) string {
	kind := inmemory.Kind{APIVersion: c.apiVersion(), Kind: strings.TrimSuffix(c.Kind, "List")}
	return inmemory.Bookmark(kind, int64(revision), endsInitial)
}

// watch answers with a stream that lasts until the request or Cut ends it, with a bookmark every
// minute. A streaming list begins with the objects; a watch by name ends with them.
func (f *FakeAPI) watch(r *http.Request, c *FakeCollection) *http.Response {
	query, begins := r.URL.Query(), ""
	initial, named := query.Get("sendInitialEvents") != "", query.Get("fieldSelector") != ""
	revision, objects := c.now(r)
	if initial || named {
		for _, object := range objects {
			begins += WatchEvent("ADDED", object)
		}
	}
	if initial {
		begins += c.bookmark(revision, true)
	}
	if named {
		return JSONResponse(r, http.StatusOK, begins)
	}
	body, events := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = events.CloseWithError(r.Context().Err()) })
	c.watches = append(c.watches, events)
	resp := JSONResponse(r, http.StatusOK, "")
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(begins), body), body}
	go func() {
		for {
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
				return
			}
			f.mu.Lock()
			silent := c.silent
			f.mu.Unlock()
			if silent {
				continue
			}
			if _, err := io.WriteString(events, c.bookmark(1, false)); err != nil {
				return
			}
		}
	}()
	return resp
}

// WatchEvent is a line of a watch.
func WatchEvent(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

// Refusal is an error as API servers write it.
func Refusal(r *http.Request, code int) *http.Response {
	return JSONResponse(r, code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code))
}

// Event sends an event to those who watch path, and waits until it has been taken.
func (f *FakeAPI) Event(path, kind, object string) {
	f.Send(path, kind, object)
	synctest.Wait()
}

// Send sends an event to those who watch path.
func (f *FakeAPI) Send(path, kind, object string) {
	f.mu.Lock()
	watches := f.Collections[path].watches
	f.mu.Unlock()
	for _, events := range watches {
		_, _ = io.WriteString(events, WatchEvent(kind, object)) // or nobody reads it any more
	}
}

// Cut ends the watches of path.
func (f *FakeAPI) Cut(path string) { f.endWatches(path, io.ErrUnexpectedEOF) }

// End ends the watches of path in order, as at their timeout.
func (f *FakeAPI) End(path string) { f.endWatches(path, io.EOF) }

func (f *FakeAPI) endWatches(path string, with error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.Collections[path].watches {
		_ = events.CloseWithError(with)
	}
	f.Collections[path].watches = nil
}

// Hold sets what is listed at path, and tells nobody.
func (f *FakeAPI) Hold(path string, objects ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Collections[path].Objects = objects
}

// Silence makes watches of path have no bookmarks by themselves.
func (f *FakeAPI) Silence(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Collections[path].silent = true
}

// Stall holds back what is listed or read at path, until Flow.
func (f *FakeAPI) Stall(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stalls[path] = make(chan struct{})
}

// Flow ends Stall.
func (f *FakeAPI) Flow(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.stalls[path])
	delete(f.stalls, path)
}

// Answer sets what "verb path" is answered with; zero means as usual.
func (f *FakeAPI) Answer(status int, verbPaths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, verbPath := range verbPaths {
		f.status[verbPath] = status
	}
}

// Document sets what discovery reads at path.
func (f *FakeAPI) Document(path, document string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.documents[path] = document
}

// Asked returns how often "verb path" was.
func (f *FakeAPI) Asked(verbPath string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Requests[verbPath]
}

// Transport is a transport in memory.
type Transport func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f Transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// JSONResponse returns a JSON response.
func JSONResponse(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    r,
	}
}
