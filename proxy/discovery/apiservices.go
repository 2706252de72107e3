package discovery

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

const (
	// apiServicesGrace is how long the last known APIServices are valid after their stream last sent
	// something. A bookmark comes every minute, so they are valid for at least a minute and a half
	// after the stream breaks. In that time it can be opened again.
	apiServicesGrace = time.Minute + streamSilence
	// automanaged is the label of the APIServices that the API server makes for what it serves
	// itself: "onstart" for what is built in, "true" for what follows CustomResourceDefinitions
	// (kube-aggregator, autoregister.AutoRegisterManagedLabel).
	automanaged = "kube-aggregator.kubernetes.io/automanaged"
)

// server is who answers for a group/version.
type server struct {
	aggregated bool   // another one than the API server
	custom     bool   // by CustomResourceDefinitions
	service    string // the Service of another one
}

// ownLocked returns an empty reason if gv is the API server's own.
func (c *Catalog) ownLocked(gv schema.GroupVersion) reason.Reason {
	switch {
	case c.refused && gv == coreV1:
		return ""
	case c.refused && gv.Group == "":
		return reason.UnknownResource
	case c.refused:
		return reason.Aggregated
	case c.servers == nil, !c.heard.within(apiServicesGrace):
		return reason.Warming
	}
	answers, registered := c.servers[gv]
	switch {
	case answers.aggregated:
		return reason.Aggregated
	case registered, gv == coreV1:
		return ""
	default:
		return reason.UnknownResource
	}
}

// streamEnded notes that the stream has ended, and why.
func (c *Catalog) streamEnded(err error) {
	if isRefused(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused = true
	}
}

// store returns the store of what follows the APIServices.
func (c *Catalog) store() store[schema.GroupVersion, server] {
	return store[schema.GroupVersion, server]{
		read: readAPIService, known: &c.servers, mu: &c.mu, heard: &c.heard,
		// What discovery said before is not kept; after a gap, nothing is.
		also: func(list bool, gv schema.GroupVersion) {
			delete(c.known, gv)
			if list {
				c.refused = false
				clear(c.known)
			}
		},
		changed: func(is change[schema.GroupVersion, server]) {
			for gv := range is.was {
				c.moved(gv)
			}
		},
	}
}

// readAPIService returns the group/version of an APIService and who answers for
// it. One that cannot be read, or that does not say what kind of resources it
// has, counts as one with a service. (Its name is version.group: validation
// demands it, and a version has no dots.)
func readAPIService(obj any) (schema.GroupVersion, server, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return schema.GroupVersion{}, server{}, fmt.Errorf("an APIService came as %T", obj)
	}
	version, group, _ := strings.Cut(u.GetName(), ".")
	spec, ok := u.Object["spec"].(map[string]any)
	label := u.GetLabels()[automanaged]
	is := server{
		aggregated: !ok || spec["service"] != nil || label != "onstart" && label != "true",
		custom:     label == "true",
	}
	service, _ := spec["service"].(map[string]any)
	if name, _ := service["name"].(string); name != "" {
		// Another Service is another server, with revisions of its own.
		is.service = fmt.Sprintf("%v/%s:%v", service["namespace"], name, service["port"])
	}
	return schema.GroupVersion{Group: group, Version: version}, is, nil
}
