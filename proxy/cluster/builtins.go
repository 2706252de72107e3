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
	// discoveryInterval is the shortest pause between two reads of discovery. The longest is a fifth longer.
	discoveryInterval = 5 * time.Minute
	// discoveryRetryInterval is the pause after a read that failed.
	discoveryRetryInterval = 5 * time.Second
	// routesPollInterval is the pause between two checks whether routes are known, at the start.
	routesPollInterval = 100 * time.Millisecond
)

// builtins has the built-in resources of a group and version, by discovery.
type builtins struct {
	// namespaced has each resource that can be listed and watched, and whether it is namespaced.
	namespaced map[string]bool
	// unavailable is the reason to forward all of them, or None.
	unavailable reason.Reason
}

// followDiscovery reads the built-in resources of kube-apiserver when routes are known, when a route or the API servers
// have changed, once more [snapshot.Skew] later, and every discoveryInterval. If a read fails, what was read before stays
// in use.
func (c *Cluster) followDiscovery(ctx context.Context) {
	changed := true            // what was read last may be that of an API server that had not learned of a change
	var failingSince time.Time // zero if the last read succeeded, or a warning was logged
	for {
		pause := routesPollInterval
		if c.routes.ready() {
			err := c.readDiscovery(ctx)
			switch {
			case err != nil:
				pause = discoveryRetryInterval
				if failingSince.IsZero() {
					failingSince = time.Now()
				}
			case changed:
				pause = snapshot.Skew
				changed = false
				failingSince = time.Time{}
			default:
				pause = wait.Jitter(discoveryInterval, 0.2)
				failingSince = time.Time{}
			}
			if err != nil && mustWarn(err, failingSince) {
				c.config.Log.WarnContext(ctx, "discovery cannot be read for a minute: what it said before counts", "error", err)
				failingSince = time.Time{}
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
	default: // a read is due already
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
			versions[gv] = builtins{unavailable: reason.UnknownResource}
		case source.Answered(err, http.StatusForbidden) && !c.hasRead(gv): // a later 403 is of a server that is starting
			versions[gv] = builtins{unavailable: reason.NotPermitted}
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

// servable returns each resource that can be listed and watched, and whether it is namespaced.
func servable(list *metav1.APIResourceList) map[string]bool {
	resources := map[string]bool{}
	for _, r := range list.APIResources {
		isSubresource := strings.Contains(r.Name, "/")
		if !isSubresource && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
			resources[r.Name] = r.Namespaced
		}
	}
	return resources
}

// builtin returns the entry of a built-in resource, or the reason to forward.
func (c *Cluster) builtin(gvr schema.GroupVersionResource) (Entry, reason.Reason) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	version, isRead := c.builtins[gvr.GroupVersion()]
	namespaced, found := version.namespaced[gvr.Resource]
	switch {
	case !isRead:
		return Entry{}, reason.Warming
	case version.unavailable != reason.None:
		return Entry{}, version.unavailable
	case !found:
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: namespaced}, reason.None
}
