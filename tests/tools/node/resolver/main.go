// Command resolver answers the test cluster's pods: names of services, and that there is nothing else. Nothing is
// forwarded, so that no test depends on what lies outside.
package main

import (
	"flag"
	"log"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	zone = ".svc.cluster.local."
	// Tests make a service and look it up at once.
	secondsToLive = 1
)

type resolver struct {
	services  corelisters.ServiceLister
	endpoints discoverylisters.EndpointSliceLister
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	address := flag.String("address", "", "where to answer")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	watches := informers.NewSharedInformerFactory(client, time.Hour)
	answers := &resolver{
		services:  watches.Core().V1().Services().Lister(),
		endpoints: watches.Discovery().V1().EndpointSlices().Lister(),
	}
	never := make(chan struct{})
	watches.Start(never)
	watches.WaitForCacheSync(never)
	for _, network := range []string{"udp", "tcp"} {
		server := &dns.Server{Addr: *address, Net: network, Handler: answers}
		go func() { log.Fatal(server.ListenAndServe()) }()
	}
	<-never
}

func (r *resolver) ServeDNS(to dns.ResponseWriter, request *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(request)
	answer.Authoritative = true
	for _, question := range request.Question {
		addresses, exists := r.look(strings.ToLower(question.Name))
		if !exists {
			answer.Rcode = dns.RcodeNameError
		}
		if question.Qtype != dns.TypeA {
			continue
		}
		for _, address := range addresses {
			answer.Answer = append(answer.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: secondsToLive},
				A:   address,
			})
		}
	}
	if err := to.WriteMsg(answer); err != nil {
		log.Print(err)
	}
}

// look finds SERVICE.NAMESPACE.svc.cluster.local, and HOSTNAME before a headless service.
func (r *resolver) look(name string) ([]net.IP, bool) {
	words, inZone := strings.CutSuffix(name, zone)
	if !inZone {
		return nil, false
	}
	labels := strings.Split(words, ".")
	host := ""
	if len(labels) == 3 {
		host, labels = labels[0], labels[1:]
	}
	if len(labels) != 2 {
		return nil, false
	}
	service, err := r.services.Services(labels[1]).Get(labels[0])
	if err != nil {
		return nil, false
	}
	if service.Spec.ClusterIP != core.ClusterIPNone {
		return []net.IP{net.ParseIP(service.Spec.ClusterIP)}, host == ""
	}
	found := r.behind(service, host)
	return found, host == "" || len(found) > 0
}

// behind lists the ready addresses of a headless service, those of one host name if one is given.
func (r *resolver) behind(service *core.Service, host string) []net.IP {
	own := labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name})
	slices, err := r.endpoints.EndpointSlices(service.Namespace).List(own)
	if err != nil {
		log.Print(err)
	}
	var found []net.IP
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			named := host == "" || (endpoint.Hostname != nil && *endpoint.Hostname == host)
			if !ready || !named {
				continue
			}
			for _, address := range endpoint.Addresses {
				if ip := net.ParseIP(address); ip.To4() != nil {
					found = append(found, ip)
				}
			}
		}
	}
	return found
}
