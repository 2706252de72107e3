// Command discovery finds targets in a cluster as Prometheus does, in each role. For each line on
// its standard input it writes one line to its standard output: the groups of targets, as a JSON
// list.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

func main() {
	if err := run(context.Background(), os.Getenv("KUBECONFIG")); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// targets are groups by role and source.
type targets struct {
	mu     sync.Mutex
	groups map[string]*targetgroup.Group
}

func run(ctx context.Context, kubeconfig string) error {
	found := targets{groups: map[string]*targetgroup.Group{}}
	for _, role := range []kubernetes.Role{
		kubernetes.RoleNode, kubernetes.RolePod, kubernetes.RoleService, kubernetes.RoleEndpointSlice, kubernetes.RoleIngress,
	} {
		config := kubernetes.DefaultSDConfig
		config.Role, config.KubeConfig = role, kubeconfig
		config.AttachMetadata = kubernetes.AttachMetadataConfig{
			Node: true, Namespace: true, PodMetadataConfig: kubernetes.PodMetadataConfig{Deployment: true},
		}
		metrics := config.NewDiscovererMetrics(prometheus.NewRegistry(), nil)
		if err := metrics.Register(); err != nil {
			return err
		}
		discovery, err := kubernetes.New(nil, metrics, &config)
		if err != nil {
			return err
		}
		updates := make(chan []*targetgroup.Group)
		go discovery.Run(ctx, updates)
		go func() {
			for update := range updates {
				found.take(role, update)
			}
		}()
	}
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		known, err := found.known()
		if err != nil {
			return err
		}
		if err := out.Encode(known); err != nil {
			return err
		}
	}
	return lines.Err()
}

// take takes an update in: as in Prometheus, the newest group of a source is what counts.
func (t *targets) take(role kubernetes.Role, update []*targetgroup.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, group := range update {
		t.groups[string(role)+" "+group.Source] = group
	}
}

// known tells all groups that have targets.
func (t *targets) known() ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	facts := []string{}
	for source, group := range t.groups {
		if len(group.Targets) == 0 {
			continue
		}
		text, err := json.Marshal(struct{ Labels, Targets any }{group.Labels, group.Targets})
		if err != nil {
			return nil, err
		}
		facts = append(facts, source+" "+string(text))
	}
	slices.Sort(facts)
	return facts, nil
}
