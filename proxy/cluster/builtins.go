package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

const (
	// discoveryEvery is the time between two reads of discovery, and up to a fifth more; discoveryRetry is
	// the time after one that failed. discoveryTimeout bounds the read of one group and version.
	discoveryEvery   = 5 * time.Minute
	discoveryRetry   = 5 * time.Second
	discoveryTimeout = 30 * time.Second
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
	for changed := true; ; {
		pause := wait.Jitter(discoveryEvery, 0.2)
		switch {
		case !c.routes.ready():
			pause = routesEvery
		case !c.readDiscovery(ctx):
			pause = discoveryRetry
		case changed:
			pause, changed = snapshot.Skew, false
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

// readDiscovery reads all groups and versions that are built in. It returns false if not all could be.
func (c *Cluster) readDiscovery(ctx context.Context) bool {
	versions := map[schema.GroupVersion]builtins{}
	for _, gv := range append(c.builtinVersions(), coreV1) {
		path := "/apis/" + gv.String()
		if gv == coreV1 {
			path = "/api/v1"
		}
		list := &metav1.APIResourceList{}
		err := c.discovery.Get().AbsPath(path).Do(ctx).Into(list)
		switch {
		case err == nil:
			versions[gv] = builtins{namespaced: servable(list)}
		case apierrors.IsNotFound(err):
			versions[gv] = builtins{why: reason.UnknownResource}
		case apierrors.IsForbidden(err) && !c.hasRead(gv): // else an API server has not read its roles yet
			versions[gv] = builtins{why: reason.NotPermitted}
		default:
			if ctx.Err() == nil {
				c.config.Log.Log(ctx, levelOf(err), "discovery could not be read: what it said before counts", "groupVersion", gv.String(), "error", err)
			}
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.builtins = versions
	return true
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
