// SPDX-License-Identifier: Apache-2.0
// The numbered experiments, each a straight line of commands to peers. Facts that are only recorded have no
// expectation.
#pragma once

#include "tests/gpu/experiments/scene.h"

namespace arraybridge::experiments {

void Symbols(Scene& scene);                  // E1
void NoContext(Scene& scene);                // E2
void DescriptorAlone(Scene& scene);          // E3
void DescriptorAloneOnTheGpu(Scene& scene);  // E3b
void DescriptorPolled(Scene& scene);         // E4
void LegacyExporterDies(Scene& scene);       // E5
void LegacyFreed(Scene& scene);              // E6
void SameProcess(Scene& scene);              // E7
void DoubleOpen(Scene& scene);               // E8
void PointerAttributes(Scene& scene);        // E9
void PidNamespaces(Scene& scene);            // E10
void PrivateShm(Scene& scene);               // E11
void EventSemantics(Scene& scene);           // E12
void EventLifetime(Scene& scene);            // E13
void CounterFence(Scene& scene);             // E14
void OtherUsers(Scene& scene);               // E15
void HostileDescriptors(Scene& scene);       // E16
void ReadOnlyMaps(Scene& scene);             // E17
void Sizes(Scene& scene);                    // E18
void CostTable(Scene& scene);                // E19
void StaleBytes(Scene& scene);               // E20
void HostBlocks(Scene& scene);               // E21
void MaskedDevices(Scene& scene);            // E22
void Captures(Scene& scene);                 // E23
void OrderOfDeath(Scene& scene);             // E24
void OtherTenants(Scene& scene);             // E25
void Hardening(Scene& scene);                // E26
void WithoutAContext(Scene& scene);          // E27
void BesideKernels(Scene& scene);            // E28
void Starts(Scene& scene);                   // E29
void HiddenDevices(Scene& scene);            // E30

}  // namespace arraybridge::experiments
