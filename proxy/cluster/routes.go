package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// automanaged is the label of the APIServices that the API server makes for the groups that it serves itself: "onstart"
// for built-in ones, "true" for those of CustomResourceDefinitions (kube-aggregator,
// autoregister.AutoRegisterManagedLabel).
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// coreV1 is the one version of the core group.
var coreV1 = schema.GroupVersion{Version: "v1"}

// route identifies the server of a group and version. Answers do not depend on other parts of an APIService, for example
// on whether the server is available.
type route struct {
	aggregated bool // another server than kube-apiserver
	custom     bool // kube-apiserver, by CustomResourceDefinitions; if neither is true, a built-in group
}

// routeOf returns the route of a group and version that kube-apiserver itself serves, or the reason to forward.
//
// It fails closed: only if the APIService of a group and version is known, and names no service, does kube-apiserver count
// as the server. kube-apiserver makes an APIService for everything that it serves, custom resources included. (There is
// none for the group of the APIServices themselves, which is therefore forwarded.) If listproxy may not read APIServices,
// only the core group counts as served by kube-apiserver. An APIService could redirect the core group, too, but whoever may
// write that can read all Secrets anyway.
func (c *Cluster) routeOf(gv schema.GroupVersion) (route, reason.Reason) {
	// The name of an APIService is version.group (kube-aggregator validates that). A version has no dots.
	found, registered, current := c.routes.get(gv.Version + "." + gv.Group)
	switch {
	case found.aggregated:
		return found, reason.UnknownResource
	case registered && current, gv == coreV1 && c.routes.ready():
		return found, reason.None
	case current, gv.Group == "" && c.routes.ready(), c.routes.isRefused():
		return found, reason.UnknownResource
	default:
		return found, reason.Warming
	}
}

// routeChanged invalidates a group and version for which another server, or none, answers from now on. Each API server
// learns of the change by itself, and until then passes requests to the former server.
func (c *Cluster) routeChanged(r change[route]) {
	version, group, _ := strings.Cut(r.name, ".")
	gv := schema.GroupVersion{Group: group, Version: version}
	server := "none"
	if r.after != nil {
		server = r.after.String()
	}
	if r.before.isBuiltin() || r.after.isBuiltin() {
		c.wakeDiscovery()
	}
	if r.before == nil {
		return // nothing was kept
	}
	what := r.before.String() + " to " + server
	c.config.Log.Info("another server answers for a group and version: what is kept of it is dropped",
		"groupVersion", gv.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.CauseCatalog, Scope: snapshot.OfVersion(gv), What: what,
	})
}

// builtinVersions returns the groups and versions that are built into the API server, except for the core group.
func (c *Cluster) builtinVersions() (all []schema.GroupVersion) {
	c.routes.each(func(name string, r route) {
		if version, group, _ := strings.Cut(name, "."); r.isBuiltin() && group != "" {
			all = append(all, schema.GroupVersion{Group: group, Version: version})
		}
	})
	return all
}

// isBuiltin reports whether the route leads to resources that are built into kube-apiserver.
func (r *route) isBuiltin() bool { return r != nil && !r.aggregated && !r.custom }

// String returns the server for people.
func (r route) String() string {
	switch {
	case r.aggregated:
		return "another server"
	case r.custom:
		return "kube-apiserver, by definitions"
	default:
		return "kube-apiserver"
	}
}

// readAPIService reads an APIService. One without a service and without the label counts as aggregated.
func readAPIService(o *object) route {
	label := o.Metadata.Labels.Automanaged
	return route{
		aggregated: o.Spec.Service != nil || label != "onstart" && label != "true",
		custom:     label == "true",
	}
}
