package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// discoveryEvery is the time between two reads of discovery, and up to a fifth more; discoveryRetry is
	// the time after one that failed.
	discoveryEvery = 5 * time.Minute
	discoveryRetry = 5 * time.Second
	// routesEvery is the time between two looks at whether routes are known, at the start.
	routesEvery = 100 * time.Millisecond
)

// builtins are what discovery says of a group and version that is built into kube-apiserver.
type builtins struct {
	// namespaced has the resources that can be listed and watched.
	namespaced map[string]bool
	why        reason.Reason // why there are none; None if there are
}

// followDiscovery reads what kube-apiserver serves that is built in: when routes are known, when one
// or the API servers have changed, once more [snapshot.Skew] later, and now and then. While nothing can
// be read, what was read before counts.
func (c *Cluster) followDiscovery(ctx context.Context) {
	changed, failing := true, time.Time{}
	for {
		pause := routesEvery
		if c.routes.ready() {
			err := c.readDiscovery(ctx)
			switch {
			case err != nil:
				pause = discoveryRetry
				if failing.IsZero() {
					failing = time.Now()
				}
			case changed:
				pause, changed, failing = snapshot.Skew, false, time.Time{}
			default:
				pause, failing = wait.Jitter(discoveryEvery, 0.2), time.Time{}
			}
			if err != nil && isWarning(err, failing) {
				c.config.Log.WarnContext(ctx, "discovery cannot be read for a minute: what it said before counts", "error", err)
				failing = time.Time{}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			changed = true
		case <-time.After(pause):
		}
	}
}

// builtinsChanged has discovery read again.
func (c *Cluster) builtinsChanged() {
	select {
	case c.changed <- struct{}{}:
	default: // it is going to be
	}
}

// readDiscovery reads all groups and versions that are built in. It fails if not all could be.
func (c *Cluster) readDiscovery(ctx context.Context) error {
	versions := map[schema.GroupVersion]builtins{}
	for _, gv := range append(c.builtinVersions(), coreV1) {
		path := "/apis/" + gv.String()
		if gv == coreV1 {
			path = "/api/v1"
		}
		list := &metav1.APIResourceList{}
		err := c.api.read(ctx, path, pageTimeout, list)
		switch {
		case err == nil:
			versions[gv] = builtins{namespaced: servable(list)}
		case source.Answered(err, http.StatusNotFound):
			versions[gv] = builtins{why: reason.UnknownResource}
		case source.Answered(err, http.StatusForbidden) && !c.hasRead(gv): // else an API server has not read its roles yet
			versions[gv] = builtins{why: reason.NotPermitted}
		default:
			return fmt.Errorf("%s: %w", gv, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.builtins = versions
	return nil
}

// hasRead reports whether discovery has said what there is of a group and version.
func (c *Cluster) hasRead(gv schema.GroupVersion) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.builtins[gv].namespaced != nil
}

// servable returns which resources of list can be served from memory, and whether they are namespaced.
func servable(list *metav1.APIResourceList) map[string]bool {
	resources := map[string]bool{}
	for _, r := range list.APIResources {
		subresource := strings.Contains(r.Name, "/")
		if !subresource && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
			resources[r.Name] = r.Namespaced
		}
	}
	return resources
}

// builtin returns what discovery said of a resource.
func (c *Cluster) builtin(gvr schema.GroupVersionResource) (Entry, reason.Reason) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	version, read := c.builtins[gvr.GroupVersion()]
	namespaced, found := version.namespaced[gvr.Resource]
	switch {
	case !read:
		return Entry{}, reason.Warming
	case version.why != reason.None:
		return Entry{}, version.why
	case !found:
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: namespaced}, reason.None
}
