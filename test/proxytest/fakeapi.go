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

// FakeAPI is an API server in memory that answers as a test wants, for reflectors, discovery and feeds. (For one that answers
// truthfully, see [inmemory.ControlPlane].) It is a RoundTripper, so that it works in a synctest bubble.
type FakeAPI struct {
	Collections map[string]*FakeCollection // by path; set before the first request
	// Requests is the number of requests by "verb path". While requests may come, use CountRequests.
	Requests map[string]int

	mu        sync.Mutex               // guards Requests, the fields below, and what is in Collections
	documents map[string]string        // what discovery reads, by path
	status    map[string]int           // the status of an error in place of the usual answer, by "verb path"
	stalls    map[string]chan struct{} // lists and reads wait until the channel of their path is closed
}

// FakeCollection is what can be listed and watched at a path.
type FakeCollection struct {
	Kind       string // of the list
	APIVersion string // "": meta.k8s.io/v1
	Objects    []string
	// Now, if not nil, returns the objects in place of Objects, and their revision.
	Now     func() (revision int, objects []string)
	Custom  bool     // lists have the field order of custom resources
	Watched []string // the resourceVersions of all watches so far
	watches []*io.PipeWriter
	silent  bool // watches send only the bookmarks that a test sends
}

// NewFakeAPI returns an API server without collections.
func NewFakeAPI() *FakeAPI {
	return &FakeAPI{
		Collections: make(map[string]*FakeCollection),
		documents:   make(map[string]string),
		status:      make(map[string]int),
		stalls:      make(map[string]chan struct{}),
		Requests:    make(map[string]int),
	}
}

// Config returns a client's configuration for the API server.
func (f *FakeAPI) Config() *rest.Config {
	return &rest.Config{Host: "https://upstream.example", Transport: f}
}

// RoundTrip implements [http.RoundTripper].
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
	if stallEnds := f.stalls[r.URL.Path]; stallEnds != nil && verb != "watch" {
		f.mu.Unlock() // so that other requests are answered meanwhile
		select {
		case <-stallEnds:
		case <-r.Context().Done():
		}
		f.mu.Lock()
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
	}
	document, ok := f.documents[r.URL.Path]
	switch {
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

// collection returns the collection at path, or nil if there is none. For a path within a namespace, it returns the collection
// of all namespaces.
func (f *FakeAPI) collection(path string) *FakeCollection {
	if c := f.Collections[path]; c != nil {
		return c
	}
	prefix, rest, _ := strings.Cut(path, "/namespaces/")
	_, resource, _ := strings.Cut(rest, "/")
	return f.Collections[prefix+"/"+resource]
}

// current returns the objects that a request selects: one by name, or all. revision is the collection's.
func (c *FakeCollection) current(r *http.Request) (revision int, objects []string) {
	revision, objects = 1, c.Objects
	if c.Now != nil {
		revision, objects = c.Now()
	}
	if _, name, selects := strings.Cut(r.URL.Query().Get("fieldSelector"), "metadata.name="); selects {
		name, _, _ = strings.Cut(name, ",")
		field := fmt.Sprintf(`"name":%q`, name)
		objects = slices.DeleteFunc(slices.Clone(objects), func(o string) bool { return !strings.Contains(o, field) })
	}
	return revision, objects
}

// list answers a list. A continue token is the index of the next object.
func (c *FakeCollection) list(r *http.Request) *http.Response {
	revision, items := c.current(r)
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	next := ""
	if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && from+limit < len(items) {
		items, next = items[:from+limit], fmt.Sprintf(`"continue":"%d",`, from+limit)
	}
	joined := strings.Join(items[from:], ",")
	if c.Custom {
		next = cmp.Or(next, `"continue":"",`)
		const form = `{"apiVersion":%q,"items":[%s],"kind":%q,"metadata":{%s"resourceVersion":"%d"}}` + "\n"
		return JSONResponse(r, http.StatusOK, fmt.Sprintf(form, c.apiVersion(), joined, c.Kind, next, revision))
	}
	const form = `{"kind":%q,"apiVersion":%q,"metadata":{%s"resourceVersion":"%d"},"items":[%s]}`
	return JSONResponse(r, http.StatusOK, fmt.Sprintf(form, c.Kind, c.apiVersion(), next, revision, joined))
}

func (c *FakeCollection) apiVersion() string { return cmp.Or(c.APIVersion, "meta.k8s.io/v1") }

// bookmark returns the line of a bookmark.
func (c *FakeCollection) bookmark(revision int, endsInitial bool) string {
	kind := inmemory.Kind{APIVersion: c.apiVersion(), Kind: strings.TrimSuffix(c.Kind, "List")}
	return inmemory.Bookmark(kind, int64(revision), endsInitial)
}

// watch answers a watch. It has a bookmark every minute, and lasts until the request, Cut or End ends it. There are two special
// kinds: a streaming list (sendInitialEvents) begins with the objects and the bookmark that ends them, and a watch by name
// (fieldSelector) ends at once after the objects.
func (f *FakeAPI) watch(r *http.Request, c *FakeCollection) *http.Response {
	var initialEvents strings.Builder
	query := r.URL.Query()
	initial, named := query.Get("sendInitialEvents") != "", query.Get("fieldSelector") != ""
	revision, objects := c.current(r)
	if initial || named {
		for _, object := range objects {
			initialEvents.WriteString(WatchEvent("ADDED", object))
		}
	}
	if initial {
		initialEvents.WriteString(c.bookmark(revision, true))
	}
	if named {
		return JSONResponse(r, http.StatusOK, initialEvents.String())
	}
	body, events := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = events.CloseWithError(r.Context().Err()) })
	c.watches = append(c.watches, events)
	resp := JSONResponse(r, http.StatusOK, "")
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(initialEvents.String()), body), body}
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
			// A bookmark at the revision of Now could be wrong, since the watch may not have sent the changes up to it.
			const safeRevision, endsInitial = 1, false
			if _, err := io.WriteString(events, c.bookmark(safeRevision, endsInitial)); err != nil {
				return
			}
		}
	}()
	return resp
}

// WatchEvent returns the line of an event of a type.
func WatchEvent(eventType, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", eventType, object)
}

// Refusal returns a Status with a code, as API servers write it.
func Refusal(r *http.Request, code int) *http.Response {
	return JSONResponse(r, code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code))
}

// Event sends an event to all watches of path, and waits until the bubble is idle.
func (f *FakeAPI) Event(path, eventType, object string) {
	f.Send(path, eventType, object)
	synctest.Wait()
}

// Send sends an event to all watches of path.
func (f *FakeAPI) Send(path, eventType, object string) {
	f.mu.Lock()
	watches := f.Collections[path].watches
	f.mu.Unlock()
	for _, events := range watches {
		_, _ = io.WriteString(events, WatchEvent(eventType, object)) // an error means that the watch has ended
	}
}

// Cut breaks off the watches of path.
func (f *FakeAPI) Cut(path string) { f.endWatches(path, io.ErrUnexpectedEOF) }

// End ends the watches of path in order, as at their timeout.
func (f *FakeAPI) End(path string) { f.endWatches(path, io.EOF) }

// endWatches ends the watches of path with an error.
func (f *FakeAPI) endWatches(path string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.Collections[path].watches {
		_ = events.CloseWithError(err)
	}
	f.Collections[path].watches = nil
}

// SetObjects sets the objects at path, without events.
func (f *FakeAPI) SetObjects(path string, objects ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Collections[path].Objects = objects
}

// StopBookmarks ends the bookmarks of watches of path.
func (f *FakeAPI) StopBookmarks(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Collections[path].silent = true
}

// Stall holds back answers to lists and reads of path, until Unstall.
func (f *FakeAPI) Stall(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stalls[path] = make(chan struct{})
}

// Unstall ends Stall.
func (f *FakeAPI) Unstall(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.stalls[path])
	delete(f.stalls, path)
}

// SetStatus sets the status of the answers to each "verb path"; 0 means the usual answers.
func (f *FakeAPI) SetStatus(status int, verbPaths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, verbPath := range verbPaths {
		f.status[verbPath] = status
	}
}

// SetDocument sets the answer to discovery's GET of path.
func (f *FakeAPI) SetDocument(path, document string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.documents[path] = document
}

// CountRequests returns the number of requests for "verb path".
func (f *FakeAPI) CountRequests(verbPath string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Requests[verbPath]
}

// Transport is an [http.RoundTripper] as a function.
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
