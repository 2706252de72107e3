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
	// routesPollInterval is the pause, at the start, between two checks whether the routes are known.
	routesPollInterval = 100 * time.Millisecond
)

// builtinsByVersion has the built-in resources of each group and version.
type builtinsByVersion map[schema.GroupVersion]builtinVersion

// builtinVersion has the built-in resources of one group and version, as discovery lists them.
type builtinVersion struct {
	// listable has the name of each resource that can be listed and watched. The value reports whether the resource is
	// namespaced. The map is nil if the resources are not known.
	listable map[string]bool
	// unavailable is the reason to forward all requests for these resources, or None.
	unavailable reason.Reason
}

// followDiscovery reads discovery until ctx ends:
//
//   - It reads first when the routes (the servers of each group and version) are known, and again after each wakeDiscovery.
//   - Ten seconds ([snapshot.Skew]) after each of these reads it reads once more. The earlier answer may have come from an API
//     server that had not learned of the last change yet.
//   - From then on it reads every five minutes (discoveryInterval).
//   - While reads fail, it reads every five seconds (discoveryRetryInterval). The result of the last good read stays in use.
func (c *Cluster) followDiscovery(ctx context.Context) {
	mustRepeat := true // the next good read must be repeated after snapshot.Skew
	for {
		pause := routesPollInterval
		if c.routes.ready() {
			err := c.readDiscovery(ctx)
			c.warnOfDiscovery(ctx, err)
			switch {
			case err != nil:
				pause = discoveryRetryInterval
			case mustRepeat:
				pause = snapshot.Skew
				mustRepeat = false
			default:
				pause = wait.Jitter(discoveryInterval, 0.2)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.discoveryDue:
			mustRepeat = true
		case <-time.After(pause):
		}
	}
}

// warnOfDiscovery warns when reads of discovery have failed for a minute, and again after each further minute. It does not warn
// while the upstream itself fails (see mustWarn). err is the error of the last read, or nil after a good read.
func (c *Cluster) warnOfDiscovery(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.discoveryFailingSince = time.Time{}
	case c.discoveryFailingSince.IsZero():
		c.discoveryFailingSince = time.Now()
	case mustWarn(err, c.discoveryFailingSince):
		c.config.Log.WarnContext(ctx, "discovery could not be read for a minute: its last answer stays in use", "error", err)
		c.discoveryFailingSince = time.Time{}
	}
}

// wakeDiscovery makes followDiscovery read again, after a change of a built-in version's route or of the API servers.
func (c *Cluster) wakeDiscovery() {
	select {
	case c.discoveryDue <- struct{}{}:
	default: // a read is due already
	}
}

// readDiscovery reads the resources of all built-in groups and versions, and stores them in c.builtins. If a read fails, it
// stores nothing. A 404 is a result and no failure. So is a 403, unless the last good read had the resources of the group and
// version.
func (c *Cluster) readDiscovery(ctx context.Context) error {
	previous := c.knownBuiltins()
	versions := builtinsByVersion{}
	for _, gv := range append(c.builtinVersions(), coreV1) {
		path := "/apis/" + gv.String()
		if gv == coreV1 {
			path = "/api/v1"
		}
		list := &metav1.APIResourceList{}
		err := c.api.getJSON(ctx, path, pageTimeout, list)
		switch {
		case err == nil:
			versions[gv] = builtinVersion{listable: listableIn(list)}
		case source.Answered(err, http.StatusNotFound):
			versions[gv] = builtinVersion{unavailable: reason.UnknownResource}
		// A 403 after a success is a failure: it comes from an API server that is starting.
		case source.Answered(err, http.StatusForbidden) && previous[gv].listable == nil:
			versions[gv] = builtinVersion{unavailable: reason.NotPermitted}
		default:
			return fmt.Errorf("%s: %w", gv, err)
		}
	}
	c.builtins.Store(&versions)
	return nil
}

// listableIn returns the resources in list that can be listed and watched (see builtinVersion.listable).
func listableIn(list *metav1.APIResourceList) map[string]bool {
	resources := map[string]bool{}
	for _, r := range list.APIResources {
		isSubresource := strings.Contains(r.Name, "/")
		if !isSubresource && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
			resources[r.Name] = r.Namespaced
		}
	}
	return resources
}

// knownBuiltins returns the result of the last good read of discovery, or nil if there was none.
func (c *Cluster) knownBuiltins() builtinsByVersion {
	if versions := c.builtins.Load(); versions != nil {
		return *versions
	}
	return nil
}

// builtin returns the entry of a built-in resource, or the reason to forward.
func (c *Cluster) builtin(gvr schema.GroupVersionResource) (Entry, reason.Reason) {
	version, isRead := c.knownBuiltins()[gvr.GroupVersion()]
	namespaced, found := version.listable[gvr.Resource]
	switch { // the first case that holds decides
	case !isRead:
		return Entry{}, reason.Warming
	case version.unavailable != reason.None:
		return Entry{}, version.unavailable
	case !found:
		return Entry{}, reason.UnknownResource
	}
	return Entry{Namespaced: namespaced}, reason.None
}
