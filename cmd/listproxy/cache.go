package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/source"
)

// cacheOptions has the policy, the bounds on memory, history and age, and the switches that decide which requests are
// answered from memory.
type cacheOptions struct {
	policyFile        string
	eagerNames        []string
	maxBytes          resource.QuantityValue
	consistentLists   policy.ConsistentLists
	watches           bool
	historyWindow     time.Duration
	stalenessBound    time.Duration
	idleTimeout       time.Duration
	selfCheckInterval time.Duration

	policy           *policy.Config          // set by Validate, from policyFile, consistentLists and watches
	eagerCollections []proxy.EagerCollection // set by Validate, from eagerNames
}

// AddFlags implements optionGroup.
func (o *cacheOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.policyFile, "config", "",
		"policy `file`: which resources are kept in memory, and how (listproxy policy check FILE)")
	fs.StringSliceVar(&o.eagerNames, "eager", nil,
		"`resources` to load before /readyz says yes, and never to drop as idle: pods,pods/protobuf,deployments.v1.apps")
	bytesVar(fs, &o.maxBytes, "cache-bytes", "2Gi",
		"bound on stored objects (`quantity`, 512Mi or 2Gi; 0: no bound); compressed lists may take an eighth more. At the "+
			"bound, history is shortened, then idle resources are dropped, then lists are forwarded")
	fs.StringVar((*string)(&o.consistentLists), "consistent-lists", string(policy.ConsistentNone),
		"also answer from memory the lists that name no resourceVersion, once it is proven that memory holds everything "+
			"written before the list came. false: none; true: large lists; always: all. The policy can say otherwise for a resource")
	fs.Lookup("consistent-lists").NoOptDefVal = string(policy.ConsistentLarge)
	fs.BoolVar(&o.watches, "watches", false,
		"also answer watches and streaming lists from memory: one watch of kube-apiserver for any number of clients; "+
			"the policy can say otherwise for a resource")
	fs.DurationVar(&o.historyWindow, "history-window", 150*time.Second, "how far back a revision can be asked for")
	fs.DurationVar(&o.stalenessBound, "staleness-bound", 90*time.Second,
		"how old the newest state may be: an answer contains everything that the API server had this long ago")
	fs.DurationVar(&o.idleTimeout, "idle-timeout", 15*time.Minute,
		"a resource that nobody asked for in this time is dropped from memory; 0: never")
	fs.DurationVar(&o.selfCheckInterval, "self-check-interval", 5*time.Minute,
		"how often each resource in memory is compared with the API server; 0: never")
}

// Validate implements optionGroup. It checks the flags, reads the policy file, and sets policy and eagerCollections.
func (o *cacheOptions) Validate() error {
	if err := errors.Join(o.checkTimes(), checkBytes("--cache-bytes", o.maxBytes)); err != nil {
		return err
	}
	values := []policy.ConsistentLists{policy.ConsistentNone, policy.ConsistentLarge, policy.ConsistentAll}
	if !slices.Contains(values, o.consistentLists) {
		return fmt.Errorf("--consistent-lists %q: choose true, always or false", o.consistentLists)
	}
	file, err := readPolicyFlag(o.policyFile)
	if err != nil {
		return err
	}
	o.policy = file.Config(policy.Switches{ConsistentLists: o.consistentLists, Watches: o.watches})
	o.eagerCollections, err = parseEager(o.policy, o.eagerNames)
	if err != nil {
		return fmt.Errorf("--eager: %w", err)
	}
	return nil
}

// checkTimes returns an error for each duration that is too short.
func (o *cacheOptions) checkTimes() error {
	// A feed proves again and again that its state is current. If the bound is short, and nothing has proven the state for half
	// of it, the feed opens a watch of three seconds (source.ShortWatch). This watch must end within the other half of the
	// bound.
	const minStaleness = 2 * source.ShortWatch
	var selfCheckError error
	if o.selfCheckInterval != 0 && o.selfCheckInterval < time.Second {
		selfCheckError = fmt.Errorf("--self-check-interval %v is too short: at least 1s, or 0 for no checks", o.selfCheckInterval)
	}
	return errors.Join(
		checkDuration("--history-window", o.historyWindow, time.Second),
		checkDuration("--staleness-bound", o.stalenessBound, minStaleness),
		checkDuration("--idle-timeout", o.idleTimeout, 0),
		selfCheckError,
	)
}

// listRevisionWait is the longest time that a list waits for a revision that memory has not reached yet. Then it is forwarded.
// For example, a client updates a pod, learns from the answer that the pod is now at revision 500, and lists pods at 500 or
// later. Usually the event of that update reaches memory a few milliseconds later. If the event takes longer, forwarding is
// faster.
const listRevisionWait = 100 * time.Millisecond

// applyTo sets the fields of c that the flags and the policy determine.
func (o *cacheOptions) applyTo(c *snapshot.Config) {
	c.Limits = snapshot.Limits{History: o.historyWindow, Staleness: o.stalenessBound, Wait: listRevisionWait}
	c.MaxBytes = o.maxBytes.Value()
	c.IdleTimeout = o.idleTimeout
	c.SelfCheckInterval = o.selfCheckInterval
	c.Settings = o.settingsFor
}

// settingsFor returns the settings that the policy has for a resource.
func (o *cacheOptions) settingsFor(gvr schema.GroupVersionResource) snapshot.Settings {
	rule := o.policy.RuleFor(gvr.Group, gvr.Resource)
	return snapshot.Settings{History: rule.HistoryWindow, Watches: rule.Watches}
}
