package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// The values of the label automanaged (kube-aggregator, autoregister.AutoRegisterManagedLabel). kube-apiserver sets this
// label on the APIServices that it makes for the groups that it serves itself.
const (
	managedOnStart      = "onstart" // built-in groups
	managedContinuously = "true"    // groups of custom resources
)

// coreV1 is the only version of the core group.
var coreV1 = schema.GroupVersion{Version: "v1"}

// route names the server that answers for a group and version, as in log lines. It is all that is kept of an APIService.
type route string

const (
	routeBuiltin    route = "kube-apiserver"
	routeCustom     route = "kube-apiserver (custom resources)"
	routeAggregated route = "another server"
	// routeUnknown is no APIService's route. routeOf returns it beside a reason to forward.
	routeUnknown route = ""
)

// routeOf returns the route of a group and version that kube-apiserver itself serves, or the reason to forward.
//
// In doubt it returns a reason to forward. kube-apiserver counts as the server only if the APIService of the group and version
// is known, names no service, and has the label automanaged. kube-apiserver makes such an APIService for each group and version
// that it serves, also for custom resources. Two groups are special:
//
//   - The group of the APIServices themselves has no APIService, so requests for this group are forwarded.
//   - Version v1 of the core group counts as served by kube-apiserver even if its APIService is out of date, or may not be
//     read. An APIService could redirect the core group, too, but whoever may write an APIService can read all Secrets anyway.
func (c *Cluster) routeOf(gv schema.GroupVersion) (route, reason.Reason) {
	name := gv.Version + "." + gv.Group // of the APIService, as kube-aggregator requires
	known := c.routes.get(name)
	switch { // the first case that holds decides
	case known.value == routeAggregated:
		return routeUnknown, reason.UnknownResource
	case known.exists && known.isCurrent:
		return known.value, reason.None
	case gv == coreV1 && c.routes.ready(): // v1 of the core group needs no current APIService
		return routeBuiltin, reason.None
	case gv.Group == "" && c.routes.ready(): // the core group has no other version
		return routeUnknown, reason.UnknownResource
	case known.isCurrent: // there is no such APIService
		return routeUnknown, reason.UnknownResource
	case c.routes.isUnreadable(): // listproxy may not read APIServices
		return routeUnknown, reason.UnknownResource
	}
	return routeUnknown, reason.Warming // the APIServices are not known yet, or not any more
}

// routeChanged invalidates a group and version if another server, or none, answers for it from now on. For up to
// [snapshot.Skew], ten seconds, an API server may not have learned of the change, and still pass requests to the former server.
// Therefore [snapshot.Collections.Invalidate] lets nobody load the objects again before this time is over, and has them
// verified later.
func (c *Cluster) routeChanged(change valueChange[route]) {
	if isBuiltin(change.before) || isBuiltin(change.after) {
		c.wakeDiscovery() // it reads which resources kube-apiserver serves in the versions with this route
	}
	if change.before == nil {
		return // the objects of a new group and version are not in memory yet
	}
	server := route("none")
	if change.after != nil {
		server = *change.after
	}
	version, group, _ := strings.Cut(change.name, ".") // a version has no dots
	gv := schema.GroupVersion{Group: group, Version: version}
	description := string(*change.before + " to " + server)
	c.config.Log.Info("another server answers for a group and version: what is kept of it is dropped",
		"groupVersion", gv.String(), "change", description, "againAfter", snapshot.Skew)
	c.config.Invalidate(snapshot.OfVersion(gv), reason.Moved)
}

func isBuiltin(r *route) bool { return r != nil && *r == routeBuiltin }

// builtinVersions returns the groups and versions whose route is routeBuiltin, without the core group.
func (c *Cluster) builtinVersions() (all []schema.GroupVersion) {
	c.routes.each(func(name string, r route) {
		if version, group, _ := strings.Cut(name, "."); r == routeBuiltin && group != "" {
			all = append(all, schema.GroupVersion{Group: group, Version: version})
		}
	})
	return all
}

// readAPIService returns the route that an APIService describes. An APIService without a service and without a known label
// counts as aggregated, since kube-apiserver makes no such APIService.
func readAPIService(o *object) route {
	label := o.Metadata.Labels.Automanaged
	switch {
	case o.Spec.Service != nil:
		return routeAggregated
	case label == managedOnStart:
		return routeBuiltin
	case label == managedContinuously:
		return routeCustom
	}
	return routeAggregated
}
