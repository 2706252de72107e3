// Command clustercache runs Argo CD's cluster cache. For each line on its standard input it writes what the cache has to its
// standard output, as a line with a JSON list.
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

// pageSize is so small that lists have several pages.
const pageSize = 5

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
	cluster := cache.NewClusterCache(config, cache.SetListPageSize(pageSize))
	if err := cluster.EnsureSynced(); err != nil {
		return err
	}
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(factsOf(cluster)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// factsOf returns the objects and owners in a cache, except for Leases and Events, which kube-apiserver writes by itself.
func factsOf(cluster cache.ClusterCache) []string {
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
