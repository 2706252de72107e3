package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
)

// automanaged is the label of the APIServices that the API server makes for what it serves
// itself: "onstart" for what is built in, "true" for what follows CustomResourceDefinitions
// (kube-aggregator, autoregister.AutoRegisterManagedLabel).
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// coreV1 is the one version of the core group.
var coreV1 = schema.GroupVersion{Version: "v1"}

// route is who answers for a group and version. What is not in it, like whether that server is available,
// changes no answer.
type route struct {
	aggregated bool // another server than kube-apiserver
	custom     bool // kube-apiserver, by CustomResourceDefinitions
}

// routeOf returns the route of a group and version, if that is kube-apiserver itself; else why requests for it
// are forwarded.
//
// It fails closed. A group and version counts as the API server's own only if its APIService is known and
// names no service; kube-apiserver registers one for everything it serves itself, custom resources
// included (and except for the group of the APIServices, which is therefore forwarded). If the
// APIServices may not be read, only the core group counts as local. (An APIService could redirect the
// core group, too, but whoever may do that may already do everything, since all Secrets and
// ServiceAccounts would go there.)
func (c *Cluster) routeOf(gv schema.GroupVersion) (route, reason.Reason) {
	// An APIService's name is version.group: validation demands it, and a version has no dots.
	is, registered, current := c.routes.get(gv.Version + "." + gv.Group)
	switch {
	case is.aggregated:
		return is, reason.UnknownResource
	case registered && current, gv == coreV1 && c.routes.ready():
		return is, reason.None
	case current, gv.Group == "" && c.routes.ready(), c.routes.isRefused():
		return is, reason.UnknownResource
	default:
		return is, reason.Warming
	}
}

// rerouted tells that another server than before, or none, answers for a group and version from now on. Each API
// server learns of that by itself; until then it still passes requests to the former server.
func (c *Cluster) rerouted(of change[route]) {
	version, group, _ := strings.Cut(of.name, ".")
	gv := schema.GroupVersion{Group: group, Version: version}
	server := "none"
	if of.is != nil {
		server = of.is.String()
	}
	if of.was.isBuiltin() || of.is.isBuiltin() {
		c.builtinsChanged()
	}
	if of.was == nil {
		return // nobody answered, so nothing was kept
	}
	what := of.was.String() + " to " + server
	c.config.Log.Info("another server answers for a group and version: what is kept of it is dropped",
		"groupVersion", gv.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.Catalog, Scope: snapshot.OfVersion(gv), Until: snapshot.For(snapshot.Skew), What: what,
	})
}

// builtinVersions are the groups and versions that are built into the API server, as far as is known.
func (c *Cluster) builtinVersions() (all []schema.GroupVersion) {
	c.routes.each(func(name string, r route) {
		if version, group, _ := strings.Cut(name, "."); r.isBuiltin() && group != "" {
			all = append(all, schema.GroupVersion{Group: group, Version: version})
		}
	})
	return all
}

// isBuiltin reports whether it is kube-apiserver itself, by what is built into it. A nil route leads to nobody.
func (r *route) isBuiltin() bool { return r != nil && !r.aggregated && !r.custom }

// String returns who answers, for people.
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

// readAPIService reads the route that an APIService is. One that does not say what kind of resources it has
// counts as one with a service.
func readAPIService(o *object) route {
	label := o.Metadata.Labels.Automanaged
	return route{
		aggregated: o.Spec.Service != nil || label != "onstart" && label != "true",
		custom:     label == "true",
	}
}
