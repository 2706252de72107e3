package policy

import (
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Rule has the settings of a resource.
type Rule struct {
	Cache CacheMode
	// HistoryWindow is how long old states are kept; 0 means --history-window.
	HistoryWindow   time.Duration
	LimitAtZero     LimitAtZero
	ConsistentLists ConsistentLists
	// Watches says whether watches are answered from memory.
	Watches bool
}

// AllResources is the resource of a rule for all resources of its group.
const AllResources = "*"

// CacheMode says whether a resource is kept in memory.
type CacheMode string

// The modes, as spelled in a policy file.
const (
	// CacheOnDemand loads a resource at the first request for it, and drops it after a while without requests.
	CacheOnDemand CacheMode = "onDemand"
	// CacheNever forwards all requests for the resource.
	CacheNever CacheMode = "never"
)

// LimitAtZero says what the parameter limit means in a list at resourceVersion=0.
type LimitAtZero string

// The meanings, as spelled in a policy file.
const (
	// LimitIgnored means that the answer is the whole list, as from kube-apiserver's cache.
	LimitIgnored LimitAtZero = "ignore"
	// LimitHonoured means that the answer is a page with a continue token, as from a kube-apiserver that does not cache
	// the resource.
	LimitHonoured LimitAtZero = "honour"
)

// ConsistentLists says which lists of the newest state (those without a resourceVersion) are answered from memory.
type ConsistentLists string

// The choices, as spelled in a policy file and in --consistent-lists.
const (
	// ConsistentNone forwards all these lists.
	ConsistentNone ConsistentLists = "false"
	// ConsistentLarge answers large lists from memory. It forwards small lists, which cost kube-apiserver no more than 256 KiB
	// do (snapshot/largelists.go): kube-apiserver answers them before listproxy could prove that memory has the newest state.
	// Only a few are forwarded at the same time. Further small lists are answered from memory, too.
	ConsistentLarge ConsistentLists = "true"
	// ConsistentAll answers all these lists from memory.
	ConsistentAll ConsistentLists = "always"
)

// Representation returns the representation in which a list or watch of a resource is answered. If the request's namespace,
// Accept header or selectors do not fit the resource, it returns a reason to forward the request. Then the representation means
// nothing. namespaced says whether the resource has namespaces, and custom whether it is a custom resource.
func (r Rule) Representation(req *Request, namespaced, custom bool) (media.Representation, reason.Reason) {
	if req.Namespace != "" && !namespaced {
		return "", reason.UnknownResource
	}
	representation, why := req.Accept.representation(custom)
	if why != reason.None {
		return "", why
	}
	return representation, req.checkSelectors(namespaced, r.LimitAtZero)
}
