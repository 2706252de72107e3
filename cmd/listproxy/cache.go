package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/source"
)

// cacheOptions has the policy, the bounds on memory, history and age, and the switches for the requests that are
// answered from memory.
type cacheOptions struct {
	config     string
	eager      []string
	bytes      resource.QuantityValue
	consistent policy.ConsistentLists
	watches    bool
	history    time.Duration
	staleness  time.Duration
	idle       time.Duration
	selfCheck  time.Duration

	policy           *policy.Config          // set by Validate, from config, consistent and watches
	eagerCollections []proxy.EagerCollection // set by Validate, from eager
}

// freshWait is how long a request waits for a revision that memory has not reached, before it is forwarded. Events arrive
// a few milliseconds after the upstream has answered the write. If an event takes longer, forwarding is faster.
const freshWait = 100 * time.Millisecond

// minStaleness is the shortest --staleness-bound. A feed that has heard nothing for half the bound opens a short watch,
// whose bookmark tells the current revision. That watch must be able to end within the other half.
const minStaleness = 2 * source.ShortWatch

func defaultCacheOptions() cacheOptions {
	return cacheOptions{
		bytes:      byteQuantity("2Gi"),
		consistent: policy.ConsistentNever,
		history:    150 * time.Second,
		staleness:  90 * time.Second,
		idle:       15 * time.Minute,
		selfCheck:  5 * time.Minute,
	}
}

// AddFlags implements optionGroup.
func (o *cacheOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.config, "config", o.config,
		"policy `file`: which resources are kept in memory, and how (listproxy policy check FILE)")
	fs.StringSliceVar(&o.eager, "eager", o.eager,
		"`resources` to load before /readyz says yes, and to keep: pods,pods/protobuf,deployments.v1.apps")
	fs.Var(&o.bytes, "cache-bytes",
		"bound on stored objects (`quantity`, 512Mi or 2Gi; 0 for none); compressed lists may take an eighth more. At the "+
			"bound, history is shortened, then idle resources are dropped, then lists are forwarded")
	fs.StringVar((*string)(&o.consistent), "consistent-lists", string(o.consistent),
		"answer lists that name no resourceVersion from memory too, once it is proven that memory holds everything written "+
			"before the list came. false: none; true: large lists; always: all. The policy can say otherwise for a resource")
	fs.Lookup("consistent-lists").NoOptDefVal = string(policy.ConsistentOn)
	fs.BoolVar(&o.watches, "watches", o.watches,
		"answer watches and streaming lists from memory too: one watch of kube-apiserver for any number of clients; "+
			"the policy can say otherwise for a resource")
	fs.DurationVar(&o.history, "history-window", o.history, "how far back a revision can be asked for")
	fs.DurationVar(&o.staleness, "staleness-bound", o.staleness,
		"how old the newest state may be: an answer contains everything that the API server had this long ago")
	fs.DurationVar(&o.idle, "idle-timeout", o.idle,
		"a resource that nobody asked for in this time is dropped from memory; 0 never")
	fs.DurationVar(&o.selfCheck, "self-check-interval", o.selfCheck,
		"how often each resource in memory is compared with the API server; 0 never")
}

// Validate implements optionGroup. It also sets policy and eagerCollections.
func (o *cacheOptions) Validate() error {
	if err := errors.Join(o.checkTimes(), checkBytes("--cache-bytes", o.bytes)); err != nil {
		return err
	}
	values := []policy.ConsistentLists{policy.ConsistentNever, policy.ConsistentOn, policy.ConsistentAlways}
	if !slices.Contains(values, o.consistent) {
		return fmt.Errorf("--consistent-lists %q: choose true, always or false", o.consistent)
	}
	asWritten, err := readPolicyFlag(o.config)
	if err != nil {
		return err
	}
	o.policy = asWritten.WithSwitches(policy.Switches{ConsistentLists: o.consistent, Watches: o.watches})
	if o.eagerCollections, err = parseEager(o.policy, o.eager); err != nil {
		return fmt.Errorf("--eager: %w", err)
	}
	return nil
}

func (o *cacheOptions) checkTimes() error {
	if o.selfCheck != 0 && o.selfCheck < time.Second {
		return fmt.Errorf("--self-check-interval %v is too short: at least 1s, or 0 for no checks", o.selfCheck)
	}
	return errors.Join(
		checkDuration("--history-window", o.history, time.Second),
		checkDuration("--staleness-bound", o.staleness, minStaleness),
		checkDuration("--idle-timeout", o.idle, 0),
	)
}

// applyTo sets the fields of c that the flags and the policy determine.
func (o *cacheOptions) applyTo(c *snapshot.Config) {
	c.Limits = snapshot.Limits{History: o.history, Staleness: o.staleness, Wait: freshWait}
	c.Bytes = o.bytes.Value()
	c.Idle = o.idle
	c.SelfCheck = o.selfCheck
	c.Settings = o.settings
}

// settings returns how the policy wants a resource to be kept.
func (o *cacheOptions) settings(gvr schema.GroupVersionResource) snapshot.Settings {
	rule := o.policy.RuleFor(gvr.Group, gvr.Resource)
	return snapshot.Settings{History: rule.HistoryWindow, Watches: rule.AnswersWatches()}
}

// parseEager parses the values of --eager, and checks each (see checkEager). Each collection may be named once.
func parseEager(p *policy.Config, names []string) ([]proxy.EagerCollection, error) {
	var eager []proxy.EagerCollection
	for _, name := range names {
		e, err := parseEagerName(name)
		if err == nil {
			err = checkEager(p, e)
		}
		if err == nil && slices.Contains(eager, e) {
			err = errors.New("is named twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%q %w", name, err)
		}
		eager = append(eager, e)
	}
	return eager, nil
}

// parseEagerName parses "pods", a resource of the core group, or "deployments.v1.apps", as kubectl writes resources of
// other groups. A slash and a representation may follow; JSON is the default. An error continues a sentence that begins
// with the name.
func parseEagerName(name string) (proxy.EagerCollection, error) {
	resource, representation, hasRepresentation := strings.Cut(name, "/")
	e := proxy.EagerCollection{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource},
		Representation:       media.JSON,
	}
	if hasRepresentation {
		e.Representation = media.Representation(representation)
	}
	if strings.Contains(resource, ".") {
		parsed, _ := schema.ParseResourceArg(resource)
		if parsed == nil {
			return e, errors.New("has no group: write resource.version.group, like deployments.v1.apps, " +
				"or only the resource for the core group")
		}
		e.GroupVersionResource = *parsed
	}
	return e, nil
}

// checkEager returns an error if e cannot be the name of a collection, or if the policy keeps it out of memory. The error
// continues a sentence that begins with the name.
func checkEager(p *policy.Config, e proxy.EagerCollection) error {
	if e.Resource == "" {
		return errors.New("names no resource")
	}
	if plural := pluralMeant(e.Group, e.Resource); plural != "" {
		return fmt.Errorf("is not a plural name: write %q", plural)
	}
	if !slices.Contains(media.All(), e.Representation) {
		return fmt.Errorf("has the unknown representation %q: choose among %v", e.Representation, media.All())
	}
	if rule := p.RuleFor(e.Group, e.Resource); rule.Cache == policy.CacheNever {
		return fmt.Errorf("is never kept in memory, says the policy (%s): leave it out here, or have it kept there",
			rule.Source)
	}
	return nil
}
