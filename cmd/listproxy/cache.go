package main

import (
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
)

// cacheOptions has the policy, the bounds on memory, history and age, and the kinds of requests that are answered.
type cacheOptions struct {
	flags *pflag.FlagSet // they tell whether --config was given

	config     string
	eager      []string
	bytes      resource.QuantityValue
	consistent string // a policy.ConsistentLists
	watches    bool
	history    time.Duration
	staleness  time.Duration
	idle       time.Duration
	selfCheck  time.Duration

	// Validate parses the options into these.
	policy           *policy.Config
	eagerCollections []proxy.EagerCollection
}

// freshWait is the time for which a request waits for a revision that listproxy has not reached, before it is
// forwarded. Events arrive a few milliseconds after the upstream has answered the write. If one takes longer than
// freshWait, forwarding is the quicker way.
const freshWait = 100 * time.Millisecond

// consistentWait is the time for which a consistent list waits for the proof that memory is current, before it is
// forwarded. On a healthy upstream the proof takes less.
const consistentWait = 1500 * time.Millisecond

func defaultCacheOptions() cacheOptions {
	return cacheOptions{
		bytes:      byteQuantity("2Gi"),
		consistent: string(policy.ConsistentNever),
		history:    150 * time.Second,
		staleness:  90 * time.Second,
		idle:       15 * time.Minute,
		selfCheck:  5 * time.Minute,
	}
}

// AddFlags implements optionGroup.
func (o *cacheOptions) AddFlags(fs *pflag.FlagSet) {
	o.flags = fs
	fs.StringVar(&o.config, "config", o.config,
		"policy `file`: which resources are kept in memory, and how (listproxy policy check FILE)")
	fs.StringSliceVar(&o.eager, "eager", o.eager,
		"`resources` to load before /readyz says yes, and to keep: pods,pods/protobuf,deployments.v1.apps")
	fs.Var(&o.bytes, "cache-bytes",
		"bound on what is stored (`quantity`, 512Mi or 2Gi; 0 for none), beside which compressed lists may take an eighth "+
			"of it: at the bound, history is shortened, then idle resources are dropped, then lists are forwarded")
	fs.StringVar(&o.consistent, "consistent-lists", o.consistent,
		"answer lists that name no resourceVersion from memory too, once it is proven that memory holds everything written "+
			"before the list came. true: all but small ones; always: these, too; false: none. The policy can say otherwise "+
			"for a resource")
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

// Validate implements optionGroup. It also reads the policy, and applies the switches of the flags to it.
func (o *cacheOptions) Validate() (err error) {
	if err := o.checkTimes(); err != nil {
		return err
	}
	if err := checkBytes("--cache-bytes", o.bytes); err != nil {
		return err
	}
	switch policy.ConsistentLists(o.consistent) {
	case policy.ConsistentNever, policy.ConsistentOn, policy.ConsistentAlways:
	default:
		return fmt.Errorf("--consistent-lists %q: choose true, always or false", o.consistent)
	}
	if o.policy, err = readPolicyFlag(o.flags, o.config); err != nil {
		return err
	}
	o.policy = o.policy.WithSwitches(policy.Switches{Consistent: policy.ConsistentLists(o.consistent), Watches: o.watches})
	if o.eagerCollections, err = parseEager(o.policy, o.eager); err != nil {
		return fmt.Errorf("--eager: %w", err)
	}
	return nil
}

func (o *cacheOptions) checkTimes() error {
	if err := checkDurations(
		durationFlag{"--history-window", o.history, time.Second},
		durationFlag{"--staleness-bound", o.staleness, 6 * time.Second},
		durationFlag{"--idle-timeout", o.idle, 0},
	); err != nil {
		return err
	}
	if o.selfCheck != 0 && o.selfCheck < time.Second {
		return fmt.Errorf("--self-check-interval %v is too short: at least 1s, or 0 for no checks", o.selfCheck)
	}
	return nil
}

// ApplyTo sets the fields of c that the flags and the policy determine.
func (o *cacheOptions) ApplyTo(c *snapshot.Config) {
	c.Limits = snapshot.Limits{History: o.history, Staleness: o.staleness, Wait: freshWait}
	c.Bytes, c.Idle, c.SelfCheck = o.bytes.Value(), o.idle, o.selfCheck
	c.Settings = o.settings
}

// settings returns the policy's settings for keeping a resource.
func (o *cacheOptions) settings(gvr schema.GroupVersionResource) snapshot.Settings {
	rule := o.policy.RuleFor(gvr.Group, gvr.Resource)
	return snapshot.Settings{History: rule.HistoryWindow, Watches: rule.AnswersWatches()}
}

// parseEager parses the names that --eager takes: "pods" for the core group, or resource.version.group as kubectl
// writes it. A slash and a representation may follow; without them it is JSON.
func parseEager(c *policy.Config, names []string) ([]proxy.EagerCollection, error) {
	var eager []proxy.EagerCollection
	for _, name := range names {
		resource, representation, hasRepresentation := strings.Cut(name, "/")
		e := proxy.EagerCollection{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Representation: media.JSON,
		}
		if hasRepresentation {
			e.Representation = media.Representation(representation)
		}
		if strings.Contains(resource, ".") {
			parsed, _ := schema.ParseResourceArg(resource)
			if parsed == nil {
				return nil, fmt.Errorf("%q: write resource.version.group, like deployments.v1.apps, "+
					"or only the resource for the core group", name)
			}
			e.GroupVersionResource = *parsed
		}
		rule := c.RuleFor(e.Group, e.Resource)
		switch meant := pluralMeant(e.Group, e.Resource); {
		case e.Resource == "":
			return nil, fmt.Errorf("%q names no resource", name)
		case meant != "":
			return nil, fmt.Errorf("%q is not a plural name: write %q", name, meant)
		case !slices.Contains(media.All(), e.Representation):
			return nil, fmt.Errorf("%q: %q is no representation: choose among %v", name, representation, media.All())
		case rule.Cache == policy.CacheNever:
			return nil, fmt.Errorf("%q is never kept in memory, says the policy (%s): leave it out here, or have it kept there",
				name, rule.Source)
		case slices.Contains(eager, e):
			return nil, fmt.Errorf("%q is named twice", name)
		}
		eager = append(eager, e)
	}
	return eager, nil
}
