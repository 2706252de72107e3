// Command clustercache keeps Argo CD's cache of a cluster. For each line on its standard input it
// writes one line to its standard output: what the cache knows, as a JSON list.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"k8s.io/client-go/tools/clientcmd"
)

// page is so small that lists have several pages.
const page = 5

func main() {
	if err := run(os.Getenv("KUBECONFIG")); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	cluster := cache.NewClusterCache(config, cache.SetListPageSize(page))
	if err := cluster.EnsureSynced(); err != nil {
		return err
	}
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(known(cluster)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// known is what a cache knows, except Leases and Events, which come and change by themselves.
func known(cluster cache.ClusterCache) []string {
	facts := []string{}
	var roots []kube.ResourceKey
	for key, r := range cluster.FindResources("") {
		if key.Kind == "Lease" || key.Kind == "Event" {
			continue
		}
		facts = append(facts, fmt.Sprintf("%s %s %s", key.String(), r.Ref.UID, r.ResourceVersion))
		if len(r.OwnerRefs) == 0 {
			roots = append(roots, key)
		}
	}
	cluster.IterateHierarchyV2(roots, func(r *cache.Resource, _ map[kube.ResourceKey]*cache.Resource) bool {
		name := r.ResourceKey()
		for _, owner := range r.OwnerRefs {
			facts = append(facts, fmt.Sprintf("%s is below %s %s", name.String(), owner.Kind, owner.UID))
		}
		return true
	})
	slices.Sort(facts)
	return facts
}
