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
	// discoveryInterval is the time between two reads of discovery, and up to a fifth more; discoveryRetryInterval is
	// the time after one that failed.
	discoveryInterval      = 5 * time.Minute
	discoveryRetryInterval = 5 * time.Second
	// routesPollInterval is the time between two looks whether routes are known, at the start.
	routesPollInterval = 100 * time.Millisecond
)

// builtins has the built-in resources of a group and version, by discovery.
type builtins struct {
	// namespaced has the resources that can be listed and watched, and whether they are namespaced.
	namespaced map[string]bool
	// why is the reason for which all are forwarded, or None.
	why reason.Reason
}

// followDiscovery reads the built-in resources of kube-apiserver: when routes are known, when a route or the API
// servers have changed, once more [snapshot.Skew] later, and every discoveryInterval. If they cannot be read, those
// that were read before count.
func (c *Cluster) followDiscovery(ctx context.Context) {
	changed := true
	var failing time.Time
	for {
		pause := routesPollInterval
		if c.routes.ready() {
			err := c.readDiscovery(ctx)
			switch {
			case err != nil:
				pause = discoveryRetryInterval
				if failing.IsZero() {
					failing = time.Now()
				}
			case changed:
				pause = snapshot.Skew
				changed = false
				failing = time.Time{}
			default:
				pause = wait.Jitter(discoveryInterval, 0.2)
				failing = time.Time{}
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

// wakeDiscovery makes followDiscovery read again.
func (c *Cluster) wakeDiscovery() {
	select {
	case c.changed <- struct{}{}:
	default: // it was woken already
	}
}

// readDiscovery reads the resources of all built-in groups and versions. It fails if one of these cannot be read.
func (c *Cluster) readDiscovery(ctx context.Context) error {
	versions := map[schema.GroupVersion]builtins{}
	for _, gv := range append(c.builtinVersions(), coreV1) {
		path := "/apis/" + gv.String()
		if gv == coreV1 {
			path = "/api/v1"
		}
		list := &metav1.APIResourceList{}
		err := c.api.getJSON(ctx, path, pageTimeout, list)
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

// hasRead reports whether the resources of a group and version were read before.
func (c *Cluster) hasRead(gv schema.GroupVersion) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.builtins[gv].namespaced != nil
}

// servable returns the resources that can be listed and watched, and whether they are namespaced.
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

// builtin returns the entry of a built-in resource, or the reason to forward.
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
