package main

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// adminOptions are who may look at the admin port's pages, beside those who use an address or a
// name that nobody elsewhere can own.
type adminOptions struct {
	hosts []string
}

func (o *adminOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.hosts, "admin-hosts", o.hosts, "more host `names` that clients of --admin-bind-address may use, besides IP addresses,\nlocalhost, the machine's name, the API server's, and those of Services")
}

// complete checks the options. An error names the flag.
func (o *adminOptions) complete() error {
	for _, host := range o.hosts {
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
			return fmt.Errorf("--admin-hosts %q is not a name of a host: write it as in the DNS, listproxy.example.com, without a scheme, a port or a wildcard", host)
		}
	}
	return nil
}

// names are all names that the port is known by: with --admin-hosts the machine's own, and that of
// the API server, which its proxy leaves in requests (kubectl get --raw
// …/pods/NAME:8081/proxy/statusz).
func (o *adminOptions) names(upstream *url.URL) []string {
	names := append([]string{upstream.Hostname()}, o.hosts...)
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	return names
}
