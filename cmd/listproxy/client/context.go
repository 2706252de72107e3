package client

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
)

// loadKubeconfig reads the kubeconfig that a command is given, or $KUBECONFIG or ~/.kube/config if path is
// empty, for one of its contexts, or for the current one.
func loadKubeconfig(path, contextName string) (clientcmd.ClientConfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	if err := checkThere(path, rules.Precedence); err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}), nil
}

// checkThere returns an error if there is no file to read the context from: client-go takes a
// missing file for an empty one. explicit is --kubeconfig; without it, one of the files must exist.
func checkThere(explicit string, files []string) error {
	if explicit != "" {
		return nil // it is an error by itself
	}
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
	}
	where := "there is no ~/.kube/config, and KUBECONFIG is not set"
	if set := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); set != "" {
		where = fmt.Sprintf("KUBECONFIG is %q, and no such file can be read", set)
	}
	return fmt.Errorf("there is no kubeconfig to take the context from: %s: correct that, or give --kubeconfig", where)
}
