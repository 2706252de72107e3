package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/pace"
)

// forwardedNewest is a list of the newest state that is forwarded, and the answer to it.
type forwardedNewest struct {
	http.ResponseWriter
	list policy.Request
	h    *Handler

	// resource and q are what memory would be asked; known is false if it could not be.
	resource snapshot.Resource
	q        index.Query
	known    bool

	begun   time.Time
	writing time.Duration
	counted *pace.Forwarded // nil if the list does not count
}

// forwardNewest begins to forward a list of the newest state. How long kube-apiserver
// takes counts only if it has accepted the caller before: the first request of a caller takes longer.
func (h *Handler) forwardNewest(w http.ResponseWriter, list policy.Request, accepted bool) *forwardedNewest {
	f := &forwardedNewest{ResponseWriter: w, list: list, h: h, begun: time.Now()}
	if f.resource, f.q, f.known = h.newest(list); f.known && accepted {
		f.counted = h.Collections.Forward(f.resource, f.q)
	}
	return f
}

// Write implements [http.ResponseWriter], and measures how long it takes.
func (f *forwardedNewest) Write(p []byte) (n int, err error) {
	f.aside(func() { n, err = f.ResponseWriter.Write(p) })
	return n, err
}

// FlushError is for [http.ResponseController]. It measures how long it takes.
func (f *forwardedNewest) FlushError() (err error) {
	f.aside(func() { err = http.NewResponseController(f.ResponseWriter).Flush() })
	return err
}

// aside calls what may wait until the client reads.
func (f *forwardedNewest) aside(wait func()) {
	begun := time.Now()
	f.counted.Aside(wait)
	f.writing += time.Since(begun)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (f *forwardedNewest) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// ended is called when kube-apiserver has answered with the list (answered), or has failed to. It
// must not wait: the end of the answer has still to be sent.
func (f *forwardedNewest) ended(answered bool) {
	if !f.known {
		return
	}
	took := time.Since(f.begun) - f.writing
	if !answered {
		took = 0
	}
	f.counted.End(took)
	if !answered {
		return
	}
	if f.list.Options.Limit > 0 {
		// The client will ask for the next page at the revision of now. On a quiet resource, the feed may
		// not know yet that its state has reached that revision.
		f.h.Collections.WantNext(f.resource, f.q)
	}
}

// newest returns the collection that a list of the newest state needs, and the query for it.
func (h *Handler) newest(list policy.Request) (snapshot.Resource, index.Query, bool) {
	entry, known := h.Catalog.Known(list.Group, list.Version, list.Resource)
	if !known || list.Options.Continue != "" {
		return snapshot.Resource{}, index.Query{}, false
	}
	representation, why := list.Accept.Representation(entry.Custom)
	if why != reason.None {
		return snapshot.Resource{}, index.Query{}, false
	}
	q := query(list, entry, policy.Decision{Semantics: policy.MostRecent, Limit: list.Options.Limit})
	return collectionOf(list, entry, representation), q, true
}
