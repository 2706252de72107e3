package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

// TestPolicyInForce: it is what was read at the start, whatever has become of the file, with what
// it leaves to flags.
func TestPolicyInForce(t *testing.T) {
	const text = `apiVersion: listproxy.io/v1alpha1
kind: Policy
resources:
- group: ""
  resource: pods
  version: v1
  cache: eager
  representations: [json]
  historyWindow: 5m
- group: apps
  resource: deployments
  idleTimeout: 1h
  maxBytes: 64Mi
`
	path := filepath.Join(t.TempDir(), "policy.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	o, err := parse("--config", path, "--eager", "nodes", "--idle-timeout", "20m", "--history-window", "3m")
	expect.NoError(t, err)
	expect.NoError(t, os.Remove(path))
	all := []string{}
	for _, r := range media.All() {
		all = append(all, string(r))
	}
	want := statusz.Policy{File: path, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), Rules: []statusz.Rule{
		{Resource: "pods.v1", Cache: "eager", Representations: []string{"json"}, History: 300, LimitAtZero: "ignore", ConsistentLists: "false", Source: path + ":4"},
		{Resource: "deployments.apps", Cache: "onDemand", Representations: all, History: 180, Idle: 3600, MaxBytes: 64 << 20, LimitAtZero: "ignore", ConsistentLists: "false", Source: path + ":10"},
		{Resource: statusz.EverythingElse, Cache: "onDemand", Representations: all, History: 180, Idle: 1200, LimitAtZero: "ignore", ConsistentLists: "false", Source: policy.BuiltIn},
		{Resource: "secrets", Cache: statusz.CacheNever, Source: policy.BuiltIn},
		{Resource: "events", Cache: statusz.CacheNever, Source: policy.BuiltIn},
		{Resource: "events.events.k8s.io", Cache: statusz.CacheNever, Source: policy.BuiltIn},
	}}
	if diff := cmp.Diff(want, o.policyInForce()); diff != "" {
		t.Errorf("the policy (-want +got):\n%s", diff)
	}
	eager := []statusz.Eager{
		{Resource: "pods", Version: "v1", Representation: "json"}, {Resource: "nodes", Version: "v1", Representation: "json"},
	}
	if diff := cmp.Diff(eager, eagerInForce(o.cache.eagerly)); diff != "" {
		t.Errorf("eager (-want +got):\n%s", diff)
	}
	if o, err = parse(); err != nil {
		t.Fatal(err)
	}
	if got := o.policyInForce(); got.File != "" || got.SHA256 != "" || len(got.Rules) != 4 {
		t.Errorf("the default policy is %+v", got)
	}
}

// TestWordsOfRules: the page knows these words of policies.
func TestWordsOfRules(t *testing.T) {
	if statusz.CacheNever != string(policy.CacheNever) || statusz.LimitHonoured != string(policy.LimitHonoured) {
		t.Error("they differ")
	}
}

func TestFlagsInForce(t *testing.T) {
	o, err := parse("--secure-port", "1234", "--eager", "pods,nodes")
	expect.NoError(t, err)
	got := map[string]statusz.Flag{}
	for _, f := range flagsInForce(o.flags) {
		got[f.Name] = f
	}
	want := []statusz.Flag{
		{Name: "secure-port", Value: "1234", Set: true},
		{Name: "eager", Value: "[pods,nodes]", Set: true},
		{Name: "history-window", Value: "2m30s"},
		{Name: "debug-pprof", Value: "false"},
	}
	for _, f := range want {
		if diff := cmp.Diff(f, got[f.Name]); diff != "" {
			t.Errorf("--%s (-want +got):\n%s", f.Name, diff)
		}
	}
}
