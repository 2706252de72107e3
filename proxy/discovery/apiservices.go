package discovery

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

// automanaged is the label of the APIServices that the API server makes for what it serves
// itself: "onstart" for what is built in, "true" for what follows CustomResourceDefinitions
// (kube-aggregator, autoregister.AutoRegisterManagedLabel).
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// server is who answers for a group/version. What is not in it, like whether a server is available,
// changes no answer.
type server struct {
	aggregated bool   // another one than the API server
	custom     bool   // by CustomResourceDefinitions
	service    string // of another one: its Service, for people
}

// route returns who answers for a group and version, with an empty reason if that is the API server
// itself.
func (c *Catalog) route(gv schema.GroupVersion) (server, reason.Reason) {
	// An APIService's name is version.group: validation demands it, and a version has no dots.
	is, registered, current := c.apiServices.get(gv.Version + "." + gv.Group)
	switch {
	case is.aggregated:
		return is, reason.UnknownResource
	case registered && current, gv == coreV1 && c.Ready():
		return is, ""
	case current, gv.Group == "" && c.Ready():
		return is, reason.UnknownResource
	case c.apiServices.isRefused():
		return is, reason.UnknownResource
	default:
		return is, reason.Warming
	}
}

// registered tells that another server than before, or none, answers for a group and version.
func (c *Catalog) registered(of change[server]) {
	version, group, _ := strings.Cut(of.name, ".")
	c.forget(group)
	switch {
	case of.was == nil: // nobody answered, so nothing was kept
	case of.is == nil:
		c.moved(schema.GroupVersion{Group: group, Version: version}, of.was.String()+" to none")
	default:
		c.moved(schema.GroupVersion{Group: group, Version: version}, of.was.String()+" to "+of.is.String())
	}
}

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

// run follows the APIServices until ctx ends.
func (c *Catalog) run(ctx context.Context) {
	c.mu.Lock()
	c.life = ctx
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.life = nil
		c.mu.Unlock()
		c.background.Wait()
	}()
	c.apiServices.run(ctx)
}
