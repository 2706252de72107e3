package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// server is who answers for a group/version. What is not in it, like whether a server is available,
// changes no answer.
type server struct {
	aggregated bool   // another one than the API server
	custom     bool   // by CustomResourceDefinitions
	service    string // of another one: its Service, for people
}

// route returns who answers for a group and version, if that is the API server itself; else why it is to
// be forwarded.
//
// It fails closed. A group and version counts as the API server's own only if its APIService is known and
// names no service; kube-apiserver registers one for everything it serves itself, custom resources
// included (and except for the group of the APIServices, which is therefore forwarded). If the
// APIServices may not be read, only the core group counts as local. (An APIService could redirect the
// core group, too, but whoever may do that may already do everything, since all Secrets and
// ServiceAccounts would go there.)
func (c *Cluster) route(gv schema.GroupVersion) (server, reason.Reason) {
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

// routed: another server than before, or none, answers for a group and version from now on. Each API
// server learns of that by itself; until then it still passes requests to the former server.
func (c *Cluster) routed(of change[server]) {
	version, group, _ := strings.Cut(of.name, ".")
	gv := schema.GroupVersion{Group: group, Version: version}
	is := "none"
	if of.is != nil {
		is = of.is.String()
	}
	if of.was.isBuiltin() || of.is.isBuiltin() {
		c.builtinsChanged()
	}
	if of.was == nil {
		return // nobody answered, so nothing was kept
	}
	what := of.was.String() + " to " + is
	c.config.Log.Info("another server answers for a group and version: what is kept of it is dropped",
		"groupVersion", gv.String(), "change", what, "again", snapshot.Skew)
	c.config.Invalidate(snapshot.Invalidation{
		Cause: snapshot.Catalog, Scope: snapshot.OfVersion(gv), Until: snapshot.For(snapshot.Skew), What: what,
	})
}

// builtinVersions are the groups and versions that are built into the API server, as far as is known.
func (c *Cluster) builtinVersions() (all []schema.GroupVersion) {
	c.routes.each(func(name string, s server) {
		if version, group, _ := strings.Cut(name, "."); s.isBuiltin() && group != "" {
			all = append(all, schema.GroupVersion{Group: group, Version: version})
		}
	})
	return all
}

// isBuiltin: it is the API server itself, by what is built into it. A nil server is nobody.
func (s *server) isBuiltin() bool { return s != nil && !s.aggregated && !s.custom }

// String names the server, for people.
func (s server) String() string {
	switch {
	case s.service != "":
		return "Service " + s.service
	case s.aggregated:
		return "another server"
	case s.custom:
		return "kube-apiserver, by definitions"
	default:
		return "kube-apiserver"
	}
}

// readAPIService reads from an APIService who answers. One that does not say what kind of resources
// it has counts as one with a service.
func readAPIService(o runtime.Object) (server, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return server{}, fmt.Errorf("an APIService came as %T", o)
	}
	spec, ok := u.Object["spec"].(map[string]any)
	label := u.GetLabels()[automanaged]
	is := server{
		aggregated: !ok || spec["service"] != nil || label != "onstart" && label != "true",
		custom:     label == "true",
	}
	service, _ := spec["service"].(map[string]any)
	if name, _ := service["name"].(string); name != "" {
		is.service = fmt.Sprintf("%v/%s:%v", service["namespace"], name, service["port"])
	}
	return is, nil
}
