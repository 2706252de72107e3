package discovery

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// discoveryRefresh is the age at which an answer of discovery is read
	// again while it is still used; after discoveryForget it is not used.
	discoveryRefresh = 5 * time.Minute
	discoveryForget  = 2 * discoveryRefresh
	// discoveryRetry is the least time between two reads of one group/version,
	// unless the first was refused: then it is discoveryRefusedRetry.
	discoveryRetry        = 5 * time.Second
	discoveryRefusedRetry = 30 * time.Second
	// discoveryTimeout bounds one read: an API server may be slow, and what it says is for the next
	// five minutes.
	discoveryTimeout = 30 * time.Second
	// maxGroupVersions bounds the answers of discovery that are remembered.
	maxGroupVersions = 1024
)

// discovered is what discovery said about a group/version. When it is no longer valid, a new one
// replaces it in the map. A read that is still in progress then fills the old one, to no effect.
type discovered struct {
	resources map[string]Entry
	read      time.Time     // when resources was asked for; zero: never
	rest      time.Time     // not to be read again before
	failure   reason.Reason // why the last read failed; empty: it did not
}

// startRead reads gv from discovery, unless a read is in progress. The channel is closed when the
// read is done; nobody has to wait for it.
func (c *Catalog) startRead(gv schema.GroupVersion) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done, reading := c.reads[gv]; reading {
		return done
	}
	done := make(chan struct{})
	if c.goLocked(func(ctx context.Context) {
		defer close(done)
		c.read(ctx, gv)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reads, gv)
	}) {
		c.reads[gv] = done
	} else {
		close(done)
	}
	return done
}

// read asks discovery about gv and remembers the answer, good or bad.
func (c *Catalog) read(ctx context.Context, gv schema.GroupVersion) {
	asked := time.Now()
	g := c.place(gv, asked)
	path := "/apis/" + gv.String()
	if gv == coreV1 {
		path = "/api/v1"
	}
	list := &metav1.APIResourceList{}
	err := c.discovery.Get().AbsPath(path).Do(ctx).Into(list)
	if ctx.Err() != nil {
		return // nobody wants to know any more
	}
	if err != nil && !apierrors.IsNotFound(err) {
		c.log.Log(ctx, levelOf(err),
			"discovery could not be read: lists of this group/version are forwarded unless it is known from before",
			"groupVersion", gv.String(), "error", err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	// If g was replaced meanwhile, because this answer may be from before a change, nobody uses it any
	// more.
	g.rest = time.Now().Add(discoveryRetry)
	switch {
	case err == nil:
		g.resources, g.read, g.failure = servable(list), asked, ""
	case apierrors.IsNotFound(err):
		g.resources, g.failure = nil, reason.UnknownResource
	case apierrors.IsForbidden(err):
		g.failure = reason.NotPermitted
		g.rest = time.Now().Add(discoveryRefusedRetry)
	default:
		g.failure = reason.Warming
	}
}

// place returns the entry for gv's answer, and makes room for it. While it is read again, lookups
// use the old answer; if there is none, they wait.
func (c *Catalog) place(gv schema.GroupVersion, now time.Time) *discovered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.known[gv]; g != nil {
		if clock.Age(g.read, now) < discoveryForget {
			g.rest = now.Add(discoveryTimeout) // the read that begins says when there may be another
		}
		return g
	}
	if len(c.known) >= maxGroupVersions {
		for other := range c.known { // any: it is read again when asked for
			delete(c.known, other)
			break
		}
	}
	g := &discovered{}
	c.known[gv] = g
	return g
}

// servable returns the resources of list that can be served from memory.
func servable(list *metav1.APIResourceList) map[string]Entry {
	resources := make(map[string]Entry, len(list.APIResources))
	for _, r := range list.APIResources {
		subresource := strings.Contains(r.Name, "/")
		var lists, watches bool
		for _, verb := range r.Verbs {
			lists = lists || verb == "list"
			watches = watches || verb == "watch"
		}
		if !subresource && lists && watches {
			resources[r.Name] = Entry{Namespaced: r.Namespaced}
		}
	}
	return resources
}
