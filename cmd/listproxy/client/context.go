package client

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
)

// loadKubeconfig loads the kubeconfig at path, or $KUBECONFIG or ~/.kube/config if path is empty. It uses the named
// context, or the current one if contextName is empty.
func loadKubeconfig(path, contextName string) (clientcmd.ClientConfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	if err := checkExists(path, rules.Precedence); err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}), nil
}

// checkExists returns an error if none of the default files exists: client-go takes a missing file for an empty one.
// explicit is --kubeconfig; client-go itself returns an error if that is missing.
func checkExists(explicit string, files []string) error {
	if explicit != "" {
		return nil
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
